//! The stored form of a login.

use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::super::credentials::{Credentials, Method, Named};
use crate::error::{Error, ErrorKind, Result};

/// The prefix of this provider's accounts in the vault.
pub(crate) const ACCOUNTS: &str = "chameleon ";
/// The format version of an entry.
const VERSION: u32 = 1;

/// One stored login; the whole JSON is the secret of its account.
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
    /// Whether the login made the credential at the site.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    made: bool,
}

impl Entry {
    /// Makes an entry from credentials that were verified for this site and project.
    pub(crate) fn new(credentials: &Credentials, site: &str, project: &str) -> Result<Self> {
        let Method::ApplicationCredential { id, secret } = &credentials.method else {
            return Err(Error::new(ErrorKind::Internal, format!("store the login at {site}"))
                .because("only application credentials are stored"));
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
            made: false,
        })
    }

    /// The same, of a credential that the login made.
    pub(crate) fn made(self) -> Self {
        Self { made: true, ..self }
    }

    pub(crate) fn is_made(&self) -> bool {
        self.made
    }

    /// The application credential's id.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The account under which the vault stores it.
    pub(crate) fn account(&self) -> String {
        account(&self.site, &self.project)
    }

    /// The entry as JSON.
    pub(crate) fn text(&self) -> Result<SecretString> {
        serde_json::to_string(self).map(SecretString::from).map_err(|_| {
            Error::new(ErrorKind::Internal, format!("store the login at {}", self.site)).because("it cannot be written")
        })
    }

    /// Parses an entry; fails if it is damaged or of another version.
    pub(crate) fn read(account: &str, text: &SecretString) -> Result<Self> {
        // The parser's message could quote the secret.
        let entry = serde_json::from_str::<Self>(text.expose_secret()).ok().filter(|entry| entry.version == VERSION);
        entry.ok_or_else(|| {
            Error::new(ErrorKind::State, format!("read the login {account}"))
                .because("it is damaged, or a newer gpucl wrote it")
                .hint("gpucl login chameleon")
        })
    }

    pub(crate) fn credentials(self) -> Credentials {
        Credentials {
            method: Method::ApplicationCredential { id: self.id, secret: SecretString::from(self.secret) },
            auth_url: self.auth_url,
            region: Some(self.site),
            project: Named { name: Some(self.project), ..Named::default() },
            interface: self.interface,
            cacert: self.cacert,
            verify: self.verify,
        }
    }
}

/// The account of a site and project.
pub(crate) fn account(site: &str, project: &str) -> String {
    format!("{ACCOUNTS}{site} {project}")
}

/// The site and project of an account.
pub(crate) fn parts(account: &str) -> Option<(&str, &str)> {
    account.strip_prefix(ACCOUNTS)?.split_once(' ')
}
