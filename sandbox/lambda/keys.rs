//! SSH keys of the account.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::answer::Answer;
use super::config::Bug;
use super::records::SshKey;
use super::refusal::{Refusal, data};
use super::state::State;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::child;

/// A key pair, as the service generates it for a request without a public key.
#[derive(Clone)]
pub(super) struct Pair {
    pub(super) public: String,
    pub(super) private: String,
}

impl State {
    pub(super) fn list_keys(&self) -> Answer {
        let now = self.now();
        data(json!(self.keys.iter().filter(|key| key.shown <= now).map(key_view).collect::<Vec<_>>()))
    }

    /// Two keys may have the same name, unless the configuration forbids it: the document has no error for the second.
    pub(super) fn add_key(&mut self, body: &Value, made: Option<Pair>) -> Answer {
        let name = body["name"].as_str().unwrap_or_default();
        let public_key = match (body["public_key"].as_str(), &made) {
            (Some(given), _) => given.trim().to_owned(),
            (None, Some(pair)) => pair.public.clone(),
            (None, None) => return Refusal::Internal.plain(),
        };
        if !is_public_key(&public_key) {
            return Refusal::InvalidParameters.says("Invalid SSH public key.");
        }
        if self.config.unique_key_names && self.keys.iter().any(|key| key.name == name) {
            return Refusal::InvalidParameters.says("Key name must be unique");
        }
        let key = SshKey { id: self.ids.hex(), name: name.to_owned(), public_key, shown: self.shown() };
        let mut view = key_view(&key);
        for number in 0..self.times() {
            let id = if number == 0 { key.id.clone() } else { self.ids.hex() };
            self.keys.push(SshKey { id, ..key.clone() });
        }
        // The private key is returned only once, and not stored.
        if let (None, Some(pair)) = (body["public_key"].as_str(), made) {
            view["private_key"] = json!(pair.private);
        }
        data(view)
    }

    pub(super) fn delete_key(&mut self, id: &str) -> Answer {
        if !self.keys.iter().any(|key| key.id == id) {
            return Refusal::NotFound.plain();
        }
        if !self.has_bug(Bug::DeleteDoesNothing) {
            self.keys.retain(|key| key.id != id);
        }
        data(json!({}))
    }
}

fn key_view(key: &SshKey) -> Value {
    json!({"id": key.id, "name": key.name, "public_key": key.public_key})
}

/// Whether a text is one line of type, key and comment.
fn is_public_key(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let (Some(kind), Some(blob)) = (words.next(), words.next()) else { return false };
    let known = ["ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"];
    let names_itself = |blob: Vec<u8>| blob.get(4..4 + kind.len()).is_some_and(|named| named == kind.as_bytes());
    known.contains(&kind) && !text.contains('\n') && STANDARD.decode(blob).is_ok_and(names_itself)
}

/// Generates a pair with the system's `ssh-keygen`.
pub(super) async fn make_pair() -> Result<Pair> {
    let doing = || "generate an SSH key pair".to_owned();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let folder = tempfile::Builder::new().permissions(private).tempdir().doing(ErrorKind::Internal, doing)?;
    let path = folder.path().join("key");
    let made = child::async_command("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
        .arg(&path)
        .stdin(std::process::Stdio::null())
        .output()
        .await
        .doing(ErrorKind::Internal, doing)?;
    if !made.status.success() {
        return Err(Error::new(ErrorKind::Internal, doing()).because(String::from_utf8_lossy(&made.stderr).trim()));
    }
    let read = |path: &std::path::Path| fs_err::read_to_string(path).doing(ErrorKind::Internal, doing);
    Ok(Pair { public: read(&path.with_extension("pub"))?.trim().to_owned(), private: read(&path)? })
}
