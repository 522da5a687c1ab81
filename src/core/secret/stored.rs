//! Secrets of jobs and applications, which `gpucl secret set` stores in the vault.

use secrecy::SecretString;

use super::{Store, Vault};
use crate::error::{Error, ErrorKind, Result};
use crate::util::near;

/// How their accounts begin.
const ACCOUNTS: &str = "secret ";

impl Vault {
    /// The names of the stored secrets.
    ///
    /// # Errors
    /// If the vault cannot be read.
    pub fn secrets(&self) -> Result<Vec<String>> {
        let accounts = self.list(ACCOUNTS)?;
        Ok(accounts.iter().filter_map(|account| account.strip_prefix(ACCOUNTS)).map(str::to_owned).collect())
    }

    /// Stores a secret by this name; returns where.
    ///
    /// # Errors
    /// If the vault cannot be written.
    pub fn put_secret(&self, name: &str, value: &SecretString) -> Result<Store> {
        self.put(&account(name), value)
    }

    /// The secret of this name.
    ///
    /// # Errors
    /// If none is stored.
    pub fn secret(&self, name: &str) -> Result<SecretString> {
        self.get(&account(name))?.ok_or_else(|| {
            let error = Error::new(ErrorKind::Usage, format!("read the secret {name}"));
            self.with_near(error.because("none of that name is stored"), name)
                .hint(format!("store it: gpucl secret set {name}"))
        })
    }

    /// Removes the secret of this name.
    ///
    /// # Errors
    /// If none is stored.
    pub fn remove_secret(&self, name: &str) -> Result<()> {
        if self.remove(&account(name))? {
            return Ok(());
        }
        Err(self.with_near(Error::new(ErrorKind::NotFound, format!("delete the secret {name}")), name))
    }

    fn with_near(&self, error: Error, name: &str) -> Error {
        let names = self.secrets().unwrap_or_default();
        match near::nearest(name, names.iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error,
        }
    }
}

fn account(name: &str) -> String {
    format!("{ACCOUNTS}{name}")
}
