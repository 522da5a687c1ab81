//! The refresh token of a login: the file of `ccauth`, which all programs of the user share for all sites, or one of
//! our own for other identity providers.
//!
//! An identity provider may replace a refresh token with each use, and end the login when an old one is used again. So
//! who uses it holds a lock from before it is read until its successor is on disk.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::credentials::Issuer;
use crate::provider::UserEnvironment;
use crate::util::digest;
use crate::util::fs::{RECORD_LIMIT, Replacement, create_private_dir, open_append, read_own_text_within};

/// How long another program may take to renew its login.
const LOCK_LIMIT: Duration = Duration::from_secs(90);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The file of `ccauth`: below `CC_LOGIN_STATE`, or `~/.cache/ccauth` (its `plugin.py`).
pub(crate) fn of_ccauth(user_environment: &UserEnvironment) -> PathBuf {
    let named = user_environment.variable("CC_LOGIN_STATE").unwrap_or("~/.cache/ccauth");
    // An absolute path replaces the home folder.
    let folder = user_environment.home.join(named.strip_prefix("~/").unwrap_or(named));
    folder.join("refresh_token.json")
}

/// The file for another identity provider: a token is sent to nobody but its issuer.
pub(crate) fn of_issuer(user_environment: &UserEnvironment, issuer: &Issuer) -> PathBuf {
    let endpoint = issuer.discovery_endpoint.as_deref().or(issuer.token_endpoint.as_deref()).unwrap_or_default();
    let name = digest::short(format!("{endpoint} {}", issuer.client_id).as_bytes());
    user_environment.config_dir.join("logins").join(format!("{name}.json"))
}

/// A refresh token, and who issued it as far as is known.
pub(crate) struct Stored {
    pub(crate) token: SecretString,
    pub(crate) issuer: Option<String>,
}

/// The file, locked against other programs until this is dropped.
pub(crate) struct Held {
    path: PathBuf,
    _lock: File,
}

impl Held {
    /// Waits until no other program uses the file, which need not exist.
    ///
    /// # Errors
    /// In words, if its folder cannot be used, or another program holds it for too long.
    pub(crate) async fn lock(path: &Path) -> Result<Self, String> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        create_private_dir(folder).map_err(|error| error.to_string())?;
        let beside = path.with_extension("lock");
        let file = open_append(&beside).map_err(|error| error.to_string())?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { path: path.to_owned(), _lock: file }),
                Err(std::fs::TryLockError::WouldBlock) if begun.elapsed() < LOCK_LIMIT => {
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                Err(std::fs::TryLockError::WouldBlock) => {
                    return Err(format!(
                        "another program has held {} for {} s",
                        beside.display(),
                        LOCK_LIMIT.as_secs()
                    ));
                }
                Err(std::fs::TryLockError::Error(error)) => {
                    return Err(format!("{} cannot be locked: {error}", beside.display()));
                }
            }
        }
    }

    /// The refresh token and its issuer; `None` if there is none.
    ///
    /// # Errors
    /// In words, if the file is another user's, cannot be read, or is damaged.
    pub(crate) fn token(&self) -> Result<Option<Stored>, String> {
        let path = self.path.display();
        let text = match read_own_text_within(&self.path, RECORD_LIMIT) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        // What it holds is not quoted.
        let value = serde_json::from_str::<Value>(&text).unwrap_or_default();
        let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let Some(token) = text("refresh_token") else {
            return Err(format!("{path} is damaged: it has no `refresh_token`"));
        };
        let issuer = claimed_issuer(token).or_else(|| text("issuer").map(str::to_owned));
        Ok(Some(Stored { token: SecretString::from(token.to_owned()), issuer }))
    }

    /// Makes the place of the next token, before the provider is asked to replace the present one: without a place it
    /// would be lost, and the login with it.
    ///
    /// # Errors
    /// In words, if the folder cannot be written to.
    pub(crate) fn place(&self) -> Result<Replacement, String> {
        // `ccauth` gives it this mode; a narrower one is kept.
        let mode = fs_err::metadata(&self.path).map_or(0o600, |found| found.permissions().mode() & 0o600);
        Replacement::begin(&self.path, mode).map_err(|error| {
            let folder = self.path.parent().unwrap_or(Path::new("/")).display();
            format!("{folder} cannot be written to, and a new refresh token would be lost: {error}")
        })
    }

    /// Stores a token in its place, in the form of `ccauth` and with the address of its issuer.
    ///
    /// # Errors
    /// In words, if it cannot be written.
    pub(crate) fn put(&self, place: Replacement, token: &SecretString, issuer: &str) -> Result<(), String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let text = json!({ "refresh_token": token.expose_secret(), "cached_at": now, "issuer": issuer }).to_string();
        place.commit(text.as_bytes()).map_err(|error| format!("{} cannot be written: {error}", self.path.display()))
    }

    /// Stores the successor of the token that was sent, unless another one is there by now: a program without the lock, such as
    /// `ccauth --force`, has logged in anew meanwhile, and its login stays.
    ///
    /// # Errors
    /// In words, if it cannot be written.
    pub(crate) fn put_after(
        &self,
        sent: &SecretString,
        place: Replacement,
        token: &SecretString,
        issuer: &str,
    ) -> Result<(), String> {
        let is_another = |there: &Stored| there.token.expose_secret() != sent.expose_secret();
        match self.token() {
            Ok(Some(there)) if is_another(&there) => Ok(()),
            _ => self.put(place, token, issuer),
        }
    }
}

/// The issuer that a token names, as those of Keycloak do: they are JSON web tokens (RFC 7519, section 4.1.1).
fn claimed_issuer(token: &str) -> Option<String> {
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice::<Value>(&claims).ok()?.get("iss")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_login_that_another_program_has_made_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("refresh_token.json");
        let held = Held::lock(&path).await.unwrap();
        let secret = |text: &str| SecretString::from(text.to_owned());
        let put = |sent: &str, new: &str| {
            held.put_after(&secret(sent), held.place().unwrap(), &secret(new), "https://issuer").unwrap();
            held.token().unwrap().unwrap().token.expose_secret().to_owned()
        };
        held.put(held.place().unwrap(), &secret("first"), "https://issuer").unwrap();
        assert_eq!(put("first", "second"), "second");
        // `ccauth --force` beside us.
        fs_err::write(&path, r#"{"refresh_token": "theirs", "cached_at": 1.0}"#).unwrap();
        assert_eq!(put("second", "third"), "theirs");
        // One that is half written is no login.
        fs_err::write(&path, r#"{"refresh_tok"#).unwrap();
        assert_eq!(put("second", "third"), "third");
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 2, "the file and its lock");
    }
}
