//! What keeps the portal's addresses the same from one call to the next.

use std::collections::BTreeMap;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util;
use crate::util::fs::{RECORD_LIMIT, read_within};

/// The version of the file's form.
const VERSION: u32 = 1;

/// The address of one page.
#[derive(Debug, Clone)]
pub struct PortalMemory {
    /// Its port.
    pub port: u16,
    /// Its key.
    pub key: SecretString,
}

#[derive(Serialize, Deserialize)]
struct File {
    v: u32,
    pages: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    port: u16,
    key: String,
}

/// Reads the addresses of all pages, by the page's name; none when there is no such file yet.
///
/// # Errors
/// When the file cannot be read, or a newer gpucl wrote it.
pub fn load(path: &Path) -> Result<BTreeMap<String, PortalMemory>> {
    let doing = || format!("read the dashboard's addresses from `{}`", path.display());
    let bytes = match read_within(path, RECORD_LIMIT) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(Error::new(ErrorKind::State, doing()).caused_by(&error)),
    };
    let file: File = serde_json::from_slice(&bytes)
        .doing(ErrorKind::State, doing)
        .map_err(|error| error.hint(format!("remove it, new addresses are made then: `rm '{}'`", path.display())))?;
    if file.v != VERSION {
        return Err(Error::new(ErrorKind::State, doing())
            .because(format!("it has version {}, this gpucl knows version {VERSION}", file.v))
            .hint("use the newer gpucl that wrote it"));
    }
    let known = |(name, entry): (String, Entry)| (name, PortalMemory { port: entry.port, key: entry.key.into() });
    Ok(file.pages.into_iter().map(known).collect())
}

/// Keeps the addresses of all pages, in a file that only its user may read.
///
/// # Errors
/// When it cannot be written.
pub fn save(path: &Path, pages: &BTreeMap<String, PortalMemory>) -> Result<()> {
    let doing = || format!("keep the dashboard's addresses in `{}`", path.display());
    let entry = |page: &PortalMemory| Entry { port: page.port, key: page.key.expose_secret().to_owned() };
    let pages = pages.iter().map(|(name, page)| (name.clone(), entry(page))).collect();
    let bytes = serde_json::to_vec(&File { v: VERSION, pages }).doing(ErrorKind::State, doing)?;
    util::fs::write_atomic(path, &bytes, 0o600).doing(ErrorKind::State, doing)
}
