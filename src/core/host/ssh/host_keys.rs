//! Which host keys of a cluster were replaced: what its `known_hosts` is made from, besides the given keys.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fs::{RECORD_LIMIT, read_text_within, write_atomic};

/// The file of the replaced keys, in the cluster's state folder.
const FILE: &str = "host_keys.json";
const VERSION: u32 = 1;

/// The host keys of a cluster that were replaced, or are about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HostKeys {
    version: u32,
    replaced: Vec<Replaced>,
}

/// A given host key, and the one in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Replaced {
    pub(super) given: String,
    pub(super) own: String,
    /// Whether a connection has shown that the host uses its own key; until then either may be in use.
    pub(super) is_in_use: bool,
}

impl Default for HostKeys {
    fn default() -> Self {
        Self { version: VERSION, replaced: Vec::new() }
    }
}

impl HostKeys {
    /// Reads those of the cluster in this folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let file = folder.join(FILE);
        let doing = || format!("read {}", file.display());
        let text = match read_text_within(&file, RECORD_LIMIT) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            read => read.doing(ErrorKind::State, doing)?,
        };
        let keys: Self = serde_json::from_str(&text).doing(ErrorKind::State, doing)?;
        match keys.version {
            VERSION => Ok(keys),
            other => Err(Error::new(ErrorKind::State, doing())
                .because(format!("it has version {other}; this gpucl knows version {VERSION}"))),
        }
    }

    /// The keys that a host may show whose given key this is.
    pub(super) fn accepted<'a>(&'a self, given: &'a str) -> Vec<&'a str> {
        let given = given.trim();
        match self.of(given) {
            None => vec![given],
            Some(key) if key.is_in_use => vec![&key.own],
            Some(key) => vec![given, &key.own],
        }
    }

    /// What has become of a given key.
    pub(super) fn of(&self, given: &str) -> Option<&Replaced> {
        let given = plain(given);
        self.replaced.iter().find(|key| key.given == given)
    }

    /// Records a key, in place of what was recorded of it.
    pub(super) fn set(&mut self, key: Replaced) {
        self.replaced.retain(|known| known.given != key.given);
        self.replaced.push(key);
    }

    /// Writes them into this folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let doing = || format!("write {FILE} in {}", folder.display());
        let text = serde_json::to_vec_pretty(self).doing(ErrorKind::State, doing)?;
        write_atomic(&folder.join(FILE), &text, 0o600).doing(ErrorKind::State, doing)
    }
}

/// Type and key, without a comment.
pub(super) fn plain(key: &str) -> String {
    key.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}
