//! Storage of a user's cloud credentials: in the desktop keyring, else in a private file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::keyring;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::state::way_to_write;
use crate::util::fs;

/// The version of the file format.
const VERSION: u32 = 1;

/// A user's cloud credentials, by account: `chameleon CHI@TACC CHI-231138`.
#[derive(Debug)]
pub struct Vault {
    file: PathBuf,
    keyring: bool,
}

/// Where a secret is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// In the desktop keyring.
    Keyring,
    /// In the private file.
    File,
}

/// The content of the file: all accounts, and the secrets that are not in the keyring.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    #[serde(default)]
    accounts: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    Keyring,
    Secret(String),
}

impl Vault {
    /// Opens the vault in this configuration folder; `session_bus` is the address of the desktop's bus, if any.
    pub fn open(config_dir: &Path, session_bus: Option<&str>) -> Self {
        let keyring = session_bus.is_some_and(|address| !address.is_empty());
        Self { file: config_dir.join("credentials.yaml"), keyring }
    }

    /// The path of the accounts file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The accounts with this prefix, sorted.
    pub fn list(&self, begin: &str) -> Result<Vec<String>> {
        Ok(self.read()?.accounts.into_keys().filter(|account| account.starts_with(begin)).collect())
    }

    /// Reads the secret of an account; `None` if there is no such account.
    pub fn get(&self, account: &str) -> Result<Option<SecretString>> {
        match self.read()?.accounts.remove(account) {
            None => Ok(None),
            Some(Entry::Secret(secret)) => Ok(Some(SecretString::from(secret))),
            Some(Entry::Keyring) => keyring::get(account).map(Some),
        }
    }

    /// Stores a secret, replacing an existing one; returns where it is stored.
    pub fn put(&self, account: &str, secret: &SecretString) -> Result<Store> {
        let mut contents = self.read()?;
        let (entry, store) = if self.keyring && keyring::put(account, secret).is_ok() {
            (Entry::Keyring, Store::Keyring)
        } else {
            (Entry::Secret(secret.expose_secret().to_owned()), Store::File)
        };
        contents.accounts.insert(account.to_owned(), entry);
        self.write(&contents)?;
        Ok(store)
    }

    /// Removes an account; returns whether it existed.
    pub fn remove(&self, account: &str) -> Result<bool> {
        let mut contents = self.read()?;
        let Some(entry) = contents.accounts.remove(account) else { return Ok(false) };
        if matches!(entry, Entry::Keyring) {
            keyring::remove(account)?;
        }
        self.write(&contents)?;
        Ok(true)
    }

    fn read(&self) -> Result<Contents> {
        let doing = || "read the stored credentials".to_owned();
        let text = match fs::read_text_within(&self.file, fs::RECORD_LIMIT) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Contents { version: VERSION, ..Contents::default() });
            }
            Err(error) => return Err(error).doing(ErrorKind::State, doing),
        };
        // The parser's message could quote a secret.
        let contents: Contents = serde_yaml::from_str(&text).map_err(|_| {
            Error::new(ErrorKind::State, doing())
                .because(format!("{} is damaged", self.file.display()))
                .hint(format!("mv {0} {0}.old, then log in again", self.file.display()))
        })?;
        if contents.version == VERSION {
            return Ok(contents);
        }
        Err(Error::new(ErrorKind::State, doing())
            .because(format!(
                "{} has version {}, but this gpucl reads version {VERSION}",
                self.file.display(),
                contents.version
            ))
            .hint("it was written by a newer gpucl; use that one"))
    }

    fn write(&self, contents: &Contents) -> Result<()> {
        let doing = || format!("write {}", self.file.display());
        let text = serde_yaml::to_string(contents).doing(ErrorKind::Internal, doing)?;
        let write = || -> std::io::Result<()> {
            self.file.parent().map_or(Ok(()), fs::create_private_dir)?;
            fs::write_atomic(&self.file, text.as_bytes(), 0o600)
        };
        write().map_err(|error| {
            Error::new(ErrorKind::State, doing()).caused_by(&error).hint(way_to_write(&self.file, &error))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn secret(text: &str) -> SecretString {
        SecretString::from(text.to_owned())
    }

    #[test]
    fn without_a_desktop_secrets_are_in_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let vault = Vault::open(&folder.path().join("gpucl"), None);
        assert_eq!(vault.list("").unwrap(), Vec::<String>::new());
        assert!(vault.get("chameleon a").unwrap().is_none());
        assert_eq!(vault.put("chameleon a", &secret("one")).unwrap(), Store::File);
        assert_eq!(vault.put("chameleon a", &secret("two")).unwrap(), Store::File);
        vault.put("lambda b", &secret("three")).unwrap();
        assert_eq!(vault.list("chameleon ").unwrap(), ["chameleon a"]);
        assert_eq!(vault.get("chameleon a").unwrap().unwrap().expose_secret(), "two");
        assert_eq!(fs_err::metadata(vault.file()).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(vault.remove("chameleon a").unwrap());
        assert!(!vault.remove("chameleon a").unwrap());
        assert_eq!(vault.list("").unwrap(), ["lambda b"]);
    }

    #[test]
    fn a_damaged_file_is_reported_without_its_secrets() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("credentials.yaml"), "version: 1\naccounts: {a: {secret: [hush]}}\n").unwrap();
        let error = Vault::open(folder.path(), None).list("").unwrap_err();
        assert!(!format!("{error:?}").contains("hush"), "{error:?}");
        assert!(error.hints()[0].starts_with("mv "), "{error}");
    }
}
