//! The claims of hosts: `<claims>/<tag>.json`, one small file each, written atomically.

use std::io::ErrorKind as Io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::host::SshTarget;
use crate::name::{ClusterName, Key, Owner, Tag};
use crate::util::{digest, fs, random};

/// The version of the claim format.
const VERSION: u32 = 1;

/// The content of a claim file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Claim {
    version: u32,
    tag: String,
    owner: Owner,
    cluster: ClusterName,
    key: Key,
    pub(super) id: String,
    created: jiff::Timestamp,
    pub(super) target: SshTarget,
}

/// A claim on disk.
#[derive(Debug)]
pub(super) struct ListedClaim {
    pub(super) tag: Tag,
    pub(super) id: String,
    /// Its content, or why it cannot be read.
    pub(super) claim: std::result::Result<Claim, String>,
}

/// All claims of one data folder.
#[derive(Debug)]
pub(super) struct Claims {
    folder: PathBuf,
}

impl Claims {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// All claims of any owner. Files not named by a tag are ignored.
    pub(super) fn list(&self) -> Result<Vec<ListedClaim>> {
        let failed = |error: std::io::Error| self.failure("list the claims of hosts", &error);
        let entries = match fs_err::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == Io::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            let tag = name.to_str().and_then(|name| name.strip_suffix(".json")).and_then(|tag| tag.parse::<Tag>().ok());
            found.extend(tag.and_then(|tag| self.find(&tag)));
        }
        found.sort_by(|a, b| a.tag.cmp(&b.tag));
        Ok(found)
    }

    pub(super) fn find(&self, tag: &Tag) -> Option<ListedClaim> {
        let claim = match fs::read_within(&self.file(tag), fs::RECORD_LIMIT) {
            Ok(bytes) => read(&bytes, tag),
            Err(error) if error.kind() == Io::NotFound => return None,
            Err(error) => Err(error.to_string()),
        };
        // The id of an unreadable claim: fixed for a tag, and never equal to that of a readable one.
        let unread = || format!("ssh-unread-{}", digest::short(tag.to_string().as_bytes()));
        let id = claim.as_ref().map_or_else(|_| unread(), |claim| claim.id.clone());
        Some(ListedClaim { tag: tag.clone(), id, claim })
    }

    /// Creates or finds the claim of this tag; returns its id and whether it existed.
    pub(super) async fn claim(&self, tag: &Tag, target: SshTarget) -> Result<(String, bool)> {
        let doing = format!("claim the host {} for {tag}", target.node);
        match self.find(tag) {
            Some(ListedClaim { claim: Ok(claim), .. }) => return Ok((claim.id, true)),
            Some(ListedClaim { claim: Err(why), id, .. }) => {
                return Err(Error::new(ErrorKind::Provider, doing)
                    .because(format!("the claim {} is damaged: {why}", self.file(tag).display()))
                    .left(LeftBehind::Remaining(vec![id]))
                    .hint(format!("gpucl down -c {}", tag.cluster)));
            }
            None => {}
        }
        tokio::task::yield_now().await;
        let claim = Claim {
            version: VERSION,
            tag: tag.to_string(),
            owner: tag.owner.clone(),
            cluster: tag.cluster.clone(),
            key: tag.key.clone(),
            id: format!("ssh-{}", random::letters(8)?),
            created: jiff::Timestamp::now(),
            target,
        };
        let written = || {
            // The last release of another cluster may remove the empty folder during the first try.
            fs::create_private_dir(&self.folder).or_else(|error| {
                if error.kind() == Io::NotFound { fs::create_private_dir(&self.folder) } else { Err(error) }
            })?;
            fs::write_atomic(&self.file(tag), &serde_json::to_vec_pretty(&claim)?, 0o600)
        };
        written().map_err(|error| {
            let left = match self.find(tag) {
                Some(found) => LeftBehind::Remaining(vec![found.id]),
                None => LeftBehind::Clear,
            };
            self.failure(&doing, &error).left(left)
        })?;
        tokio::task::yield_now().await;
        Ok((claim.id, false))
    }

    /// Removes the claim with this tag and id; succeeds if there is none.
    pub(super) async fn release(&self, tag: &Tag, id: &str) -> Result<()> {
        if self.find(tag).is_some_and(|found| found.id == id) {
            let removed = fs_err::remove_file(self.file(tag)).and_then(|()| fs::sync_folder(&self.folder));
            removed.map_err(|error| {
                self.failure(&format!("remove the claim of {tag}"), &error)
                    .left(LeftBehind::Remaining(vec![id.to_owned()]))
            })?;
            tokio::task::yield_now().await;
        }
        // Removes these two folders as well if they are empty.
        if fs_err::remove_dir(&self.folder).is_ok() {
            let _ = self.folder.parent().map(fs_err::remove_dir);
        }
        Ok(())
    }

    fn file(&self, tag: &Tag) -> PathBuf {
        self.folder.join(format!("{tag}.json"))
    }

    fn failure(&self, doing: &str, error: &std::io::Error) -> Error {
        let text = error.to_string();
        let folder = self.folder.display();
        let failed = Error::new(ErrorKind::Provider, doing);
        // Some of these errors already name their path.
        let failed = failed.because(if text.contains('/') { text } else { format!("{folder}: {text}") });
        let parent = self.folder.parent().unwrap_or(Path::new("/")).display();
        match error.kind() {
            Io::StorageFull | Io::QuotaExceeded => failed.hint(format!("free some space: df -h {parent}")),
            Io::PermissionDenied | Io::ReadOnlyFilesystem | Io::NotADirectory | Io::AlreadyExists => failed.hint(
                format!("make it writable for your user (ls -ld {parent}), or set XDG_DATA_HOME to a writable folder"),
            ),
            _ => failed,
        }
    }
}

fn read(bytes: &[u8], tag: &Tag) -> std::result::Result<Claim, String> {
    #[derive(Deserialize)]
    struct Head {
        version: u32,
    }
    let head: Head = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if head.version > VERSION {
        return Err(format!("its version is {}, but this gpucl reads {VERSION}", head.version));
    }
    let claim: Claim = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if claim.tag == tag.to_string() { Ok(claim) } else { Err(format!("it is the claim of {}", claim.tag)) }
}
