//! The credentials that gpucl creates for a cluster. Services get them as files, never by argument or environment, and
//! no log or event has them.

mod access;
mod certificate;
mod cluster;
mod keyring;
mod marks;
mod stored;
mod vault;

use std::path::{Path, PathBuf};

pub use access::{KeyPair, ensure_key_pair, forget_private_key, key_pair, public_key};
pub use certificate::{Certificate, certificate};
pub use cluster::{GRAFANA_USER, MLFLOW_USER, PROMETHEUS_USER, Secrets, ensure_secrets};
pub use marks::Marks;
use secrecy::{ExposeSecret as _, SecretString};
pub use vault::{Store, Vault};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::state::way_to_write;
use crate::util::{fs, random};

/// The length of a token: 48 characters out of 36 are 248 bits.
const TOKEN_LENGTH: usize = 48;

/// The path of the cluster's Ray token in the folder of the cluster's state.
pub fn ray_token_path(cluster_folder: &Path) -> PathBuf {
    cluster_folder.join("secrets/ray_token")
}

/// Reads the cluster's Ray token; `None` if there is none yet.
pub fn ray_token(cluster_folder: &Path) -> Result<Option<SecretString>> {
    let path = ray_token_path(cluster_folder);
    match fs::read_text_within(&path, fs::RECORD_LIMIT) {
        Ok(text) => Ok(Some(SecretString::from(text.trim().to_owned()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).doing(ErrorKind::State, || "read the cluster's token".to_owned()),
    }
}

/// Reads the cluster's Ray token, or creates one.
pub fn ensure_ray_token(cluster_folder: &Path) -> Result<SecretString> {
    if let Some(token) = ray_token(cluster_folder)? {
        return Ok(token);
    }
    let token = SecretString::from(random::letters(TOKEN_LENGTH)?);
    let path = ray_token_path(cluster_folder);
    let doing = || format!("write the cluster's token to {}", path.display());
    let write = || -> std::io::Result<()> {
        path.parent().map_or(Ok(()), fs::create_private_dir)?;
        fs::write_atomic(&path, token.expose_secret().as_bytes(), 0o600)
    };
    write()
        .map_err(|error| Error::new(ErrorKind::State, doing()).caused_by(&error).hint(way_to_write(&path, &error)))?;
    Ok(token)
}
