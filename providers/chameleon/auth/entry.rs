//! What `gpucl login` keeps of a site.

use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::credentials::{Credentials, Method};
use crate::error::{Error, ErrorKind, Result};

/// What the accounts of this provider begin with.
pub(crate) const ACCOUNTS: &str = "chameleon ";
/// The form of an entry.
const VERSION: u32 = 1;

/// One login, as it is kept: all of it is the secret of its account.
#[derive(Serialize, Deserialize)]
pub(crate) struct Entry {
    version: u32,
    auth_url: String,
    site: String,
    project: String,
    id: String,
    secret: String,
    interface: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cacert: Option<PathBuf>,
    verify: bool,
}

impl Entry {
    /// What is kept of these credentials, which were seen to be good for this site and project.
    pub(crate) fn new(credentials: &Credentials, site: &str, project: &str) -> Result<Self> {
        let Method::ApplicationCredential { id, secret } = &credentials.method else {
            return Err(Error::new(ErrorKind::Internal, format!("keep the login at {site}"))
                .because("only application credentials are kept"));
        };
        Ok(Self {
            version: VERSION,
            auth_url: credentials.auth_url.clone(),
            site: site.to_owned(),
            project: project.to_owned(),
            id: id.clone(),
            secret: secret.expose_secret().to_owned(),
            interface: credentials.interface.clone(),
            cacert: credentials.cacert.clone(),
            verify: credentials.verify,
        })
    }

    /// The account that it is kept under.
    pub(crate) fn account(&self) -> String {
        format!("{ACCOUNTS}{} {}", self.site, self.project)
    }

    /// The whole of it.
    pub(crate) fn text(&self) -> Result<SecretString> {
        serde_json::to_string(self).map(SecretString::from).map_err(|_| {
            Error::new(ErrorKind::Internal, format!("keep the login at {}", self.site)).because("it cannot be written")
        })
    }

    /// Reads one.
    pub(crate) fn read(account: &str, text: &SecretString) -> Result<Self> {
        // The reader's own words could quote the secret.
        let entry = serde_json::from_str::<Self>(text.expose_secret()).ok().filter(|entry| entry.version == VERSION);
        entry.ok_or_else(|| {
            Error::new(ErrorKind::State, format!("read the login {account}"))
                .because("it is damaged, or a newer gpucl wrote it")
                .hint("gpucl login chameleon")
        })
    }

    /// What the site is spoken to with.
    pub(crate) fn credentials(self) -> Credentials {
        Credentials {
            method: Method::ApplicationCredential { id: self.id, secret: SecretString::from(self.secret) },
            auth_url: self.auth_url,
            region: Some(self.site),
            project: super::Named { name: Some(self.project), ..super::Named::default() },
            interface: self.interface,
            cacert: self.cacert,
            verify: self.verify,
        }
    }
}

/// Site and project of an account.
pub(crate) fn parts(account: &str) -> Option<(&str, &str)> {
    account.strip_prefix(ACCOUNTS)?.split_once(' ')
}
