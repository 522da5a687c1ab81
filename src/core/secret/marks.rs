//! Marks on resources in a shared account that only this user can create: reading one does not allow forging another.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::state::way_to_write;
use crate::util::{fs, random};

/// The length of the key: 48 characters out of 36 are 248 bits.
const KEY_LENGTH: usize = 48;
/// The length of a mark, in hexadecimal digits.
const MARK_LENGTH: usize = 24;

/// The secret key for a user's marks.
#[derive(Debug, Clone)]
pub struct Marks {
    key: SecretString,
}

impl Marks {
    /// Reads the key; `None` if there is none, so this user has no marks. Changes nothing.
    pub fn known(config_dir: &Path) -> Result<Option<Self>> {
        let path = path(config_dir);
        match fs_err::read_to_string(&path) {
            Ok(text) => Ok(Some(Self { key: SecretString::from(text.trim().to_owned()) })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).doing(ErrorKind::State, || "read the key of your marks".to_owned()),
        }
    }

    /// Reads the key, or creates one.
    pub fn ensure(config_dir: &Path) -> Result<Self> {
        if let Some(known) = Self::known(config_dir)? {
            return Ok(known);
        }
        let key = SecretString::from(random::letters(KEY_LENGTH)?);
        let path = path(config_dir);
        let write = || -> std::io::Result<()> {
            fs::create_private_dir(config_dir)?;
            let mut file = tempfile::Builder::new().prefix(".gpucl-").tempfile_in(config_dir)?;
            writeln!(file, "{}", key.expose_secret())?;
            file.as_file().sync_all()?;
            match file.persist_noclobber(&path) {
                Err(error) if error.error.kind() != std::io::ErrorKind::AlreadyExists => Err(error.error),
                // Another command created it at the same time: that key is used.
                _ => fs::sync_folder(config_dir),
            }
        };
        write().map_err(|error| {
            Error::new(ErrorKind::State, format!("write the key of your marks to {}", path.display()))
                .caused_by(&error)
                .hint(way_to_write(&path, &error))
        })?;
        Self::known(config_dir)?
            .ok_or_else(|| Error::new(ErrorKind::State, "create the key of your marks").because("its file disappeared"))
    }

    /// The mark for these words.
    pub fn of(&self, words: &[&str]) -> String {
        let key = self.key.expose_secret().as_bytes();
        // A nested hash with the key, since a single one would allow length extension.
        let inner = Sha256::new().chain_update(key).chain_update(words.join("\0")).finalize();
        let outer = Sha256::new().chain_update(key).chain_update(inner).finalize();
        outer.iter().map(|byte| format!("{byte:02x}")).collect::<String>().chars().take(MARK_LENGTH).collect()
    }
}

fn path(config_dir: &Path) -> PathBuf {
    config_dir.join("marks.key")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_mark_is_stable_and_differs_for_other_words_or_users() {
        let (mine, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert!(Marks::known(mine.path()).unwrap().is_none());
        let marks = Marks::ensure(mine.path()).unwrap();
        let mark = marks.of(&["sealed", "one"]);
        assert_eq!(mark.len(), MARK_LENGTH);
        assert_eq!(Marks::known(mine.path()).unwrap().unwrap().of(&["sealed", "one"]), mark);
        assert_ne!(marks.of(&["sealed", "other"]), mark);
        assert_ne!(marks.of(&["sealedone"]), mark);
        assert_ne!(Marks::ensure(other.path()).unwrap().of(&["sealed", "one"]), mark);
        let mode = fs_err::metadata(mine.path().join("marks.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
