//! The keys of a cluster whose hosts are made for it: one to log in with, and one for each host to be known by.
//!
//! They lie in the cluster's state folder, readable by their user only, and are made by the system's `ssh-keygen`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use secrecy::{ExposeSecret as _, SecretString};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_text_within};

/// A pair of keys.
#[derive(Debug, Clone)]
pub struct KeyPair {
    /// The file of the private key.
    pub file: PathBuf,
    /// The public key: kind and key, without a comment.
    pub public: String,
}

impl KeyPair {
    /// The private key itself.
    pub fn private(&self) -> Result<SecretString> {
        let text = read_text_within(&self.file, RECORD_LIMIT);
        Ok(SecretString::from(text.doing(ErrorKind::State, || "read a key of the cluster".to_owned())?))
    }

    /// The user data of a host that is to be known by this key: cloud-init's configuration. The first connection is verified by it.
    pub fn cloud_config(&self) -> Result<SecretString> {
        let private = self.private()?;
        let indented: String = private.expose_secret().lines().map(|line| format!("    {line}\n")).collect();
        Ok(SecretString::from(format!(
            "#cloud-config\n\
             ssh_deletekeys: true\n\
             ssh_keys:\n  ed25519_private: |\n{indented}  ed25519_public: {}\n",
            self.public
        )))
    }
}

/// The pair of this name, if it was made; `login`, or a host's key.
pub fn key_pair(cluster_folder: &Path, name: &str) -> Option<KeyPair> {
    let file = file(cluster_folder, name);
    let text = read_text_within(&file.with_extension("pub"), RECORD_LIMIT).ok()?;
    let public = text.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    (file.is_file() && public.contains(' ')).then_some(KeyPair { file, public })
}

/// The pair of this name, made when there is none.
pub fn ensure_key_pair(cluster_folder: &Path, name: &str) -> Result<KeyPair> {
    if let Some(pair) = key_pair(cluster_folder, name) {
        return Ok(pair);
    }
    let file = file(cluster_folder, name);
    let doing = || format!("make the key {}", file.display());
    file.parent().map_or(Ok(()), create_private_dir).doing(ErrorKind::State, doing)?;
    // Half a pair is of a call that was cut.
    for path in [file.clone(), file.with_extension("pub")] {
        match fs_err::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).doing(ErrorKind::State, doing);
            }
            _ => {}
        }
    }
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "gpucl", "-f"])
        .arg(&file)
        .stdin(Stdio::null())
        .output();
    let output = made.map_err(|error| {
        Error::new(ErrorKind::Host, doing()).caused_by(&error).hint("sudo apt-get install openssh-client")
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    key_pair(cluster_folder, name)
        .filter(|_| output.status.success())
        .ok_or_else(|| Error::new(ErrorKind::State, doing()).because(said.trim().to_owned()))
}

fn file(cluster_folder: &Path, name: &str) -> PathBuf {
    cluster_folder.join("secrets").join(format!("ssh_{name}"))
}
