//! The credentials that the agent of a cluster's limits has a copy of, to take the cluster down unattended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};

use crate::error::{Doing as _, ErrorKind, Result};
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_within, remove_file, write_atomic};

/// Stores credentials for the agent; an empty map removes those of an earlier `up`.
pub fn keep_secrets(folder: &Path, secrets: &BTreeMap<String, SecretString>) -> Result<()> {
    let path = secrets_file(folder);
    let doing = || format!("write {}", path.display());
    if secrets.is_empty() {
        return remove_file(&path).doing(ErrorKind::State, doing);
    }
    let plain: BTreeMap<&str, &str> =
        secrets.iter().map(|(name, secret)| (name.as_str(), secret.expose_secret())).collect();
    let text = serde_json::to_vec(&plain).doing(ErrorKind::Internal, doing)?;
    path.parent().map_or(Ok(()), create_private_dir).doing(ErrorKind::State, doing)?;
    write_atomic(&path, &text, 0o600).doing(ErrorKind::State, doing)
}

/// The stored credentials, by variable name.
pub fn kept_secrets(folder: &Path) -> BTreeMap<String, SecretString> {
    let plain: Option<BTreeMap<String, String>> =
        read_within(&secrets_file(folder), RECORD_LIMIT).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    plain.unwrap_or_default().into_iter().map(|(name, secret)| (name, SecretString::from(secret))).collect()
}

/// The file with the stored credentials.
pub fn secrets_file(folder: &Path) -> PathBuf {
    folder.join("secrets").join("environment.json")
}
