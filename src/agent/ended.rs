//! What is remembered of a cluster that was taken down by its limits, for whoever asks for it afterwards.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::deadline::Why;
use crate::money::{Money, describe};
use crate::name::ClusterName;
use crate::state::Paths;
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_within, write_atomic};

/// The version of the file's form.
const VERSION: u32 = 1;

/// A cluster that was taken down by its limits: it is told to whoever asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    version: u32,
    /// When.
    pub at: Timestamp,
    /// Why, in words.
    pub why: String,
    /// What it cost, in words.
    pub cost: String,
}

impl Ended {
    /// It ended now.
    pub(super) fn now(why: &Why, cost: &[Money]) -> Self {
        Self { version: VERSION, at: Timestamp::now(), why: why.to_string(), cost: describe(cost) }
    }

    /// Writes it down.
    pub(super) fn write(&self, paths: &Paths, cluster: &ClusterName) {
        let path = ended_file(paths, cluster);
        let text = serde_json::to_vec(self).unwrap_or_default();
        let _ = path.parent().map_or(Ok(()), create_private_dir).and_then(|()| write_atomic(&path, &text, 0o600));
    }

    /// How a cluster of this name ended the last time, where its limits ended it.
    pub fn of(paths: &Paths, cluster: &ClusterName) -> Option<Self> {
        serde_json::from_slice(&read_within(&ended_file(paths, cluster), RECORD_LIMIT).ok()?).ok()
    }

    /// There is another of that name.
    pub fn forget(paths: &Paths, cluster: &ClusterName) {
        let path = ended_file(paths, cluster);
        let _ = fs_err::remove_file(&path);
        let _ = path.parent().map(fs_err::remove_dir);
    }
}

fn ended_file(paths: &Paths, cluster: &ClusterName) -> PathBuf {
    paths.state.join("ended").join(format!("{cluster}.json"))
}
