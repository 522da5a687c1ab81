//! The folders that represent hosts: `<hosts>/<tag>/claim.json`.
//!
//! A folder is created, claimed, renamed and removed, in that order; a crash may come after any step. What a step
//! leaves shows in `list`, and the next call continues from there:
//!
//! | on disk | state | acquire | release |
//! |---|---|---|---|
//! | `<tag>/` without a claim | half created | claims it | removes it |
//! | `<tag>/claim.json` | whole | returns it | renames, then removes it |
//! | `.<tag>.releasing-<id>/` | half released | creates another | removes it |
//! | nothing, but processes run from it | lost | creates another | has nothing to remove |

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind as Io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::name::{ClusterName, Key, Owner, Tag};
use crate::util::process::with_variable;
use crate::util::{digest, fs, random};

/// The version of the claim format.
const VERSION: u32 = 1;
/// The claim's file name.
pub(super) const CLAIM: &str = "claim.json";
/// The environment variable that identifies processes of nodes.
const TAG_VARIABLE: &str = "GPUCL_TAG";
/// The separator between tag and id in the name of a folder being released. No tag has a dot.
const RELEASING: &str = ".releasing-";

/// The content of the claim file.
#[derive(Debug, Serialize, Deserialize)]
struct Claim {
    version: u32,
    tag: String,
    owner: Owner,
    cluster: ClusterName,
    key: Key,
    id: String,
    created: jiff::Timestamp,
    request: String,
}

/// The minimum read from a claim, so that one of a newer version can still be listed and released.
#[derive(Deserialize)]
struct ClaimHead {
    version: u32,
    tag: String,
    id: String,
}

/// The state of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    /// It is usable.
    Whole,
    /// It was created but not claimed.
    HalfMade,
    /// Its release was begun but not finished.
    HalfReleased,
    /// Its claim is unreadable or belongs to another tag; with the reason.
    Damaged(String),
    /// The folder is gone, but this many processes started from it still run.
    Lost(usize),
}

impl fmt::Display for Condition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::HalfMade => out.write_str("its folder was created but not claimed"),
            Self::HalfReleased => out.write_str("its release was begun but not finished"),
            Self::Damaged(why) => write!(out, "its claim is damaged: {why}"),
            Self::Lost(processes) => {
                let count = crate::util::human::count(*processes, "process");
                write!(out, "its folder is gone, but {count} of it still run")
            }
        }
    }
}

/// One folder that represents a host.
#[derive(Debug)]
pub(super) struct Allotment {
    pub(super) tag: Tag,
    pub(super) id: String,
    pub(super) condition: Condition,
    folder: PathBuf,
}

/// All such folders in one data folder.
#[derive(Debug)]
pub(super) struct Allotments {
    hosts: PathBuf,
}

impl Allotments {
    pub(super) fn new(hosts: PathBuf) -> Self {
        Self { hosts }
    }

    /// All allotments of any owner, including lost ones with only processes left.
    pub(super) fn list(&self) -> Result<Vec<Allotment>> {
        let mut found = self.entries()?;
        for (tag, count) in self.running() {
            if !found.iter().any(|allotment| allotment.tag == tag) {
                let (id, folder) = (unclaimed_id(&tag), self.folder(&tag));
                found.push(Allotment { tag, id, condition: Condition::Lost(count), folder });
            }
        }
        found.sort_by(|a, b| (&a.tag, &a.folder).cmp(&(&b.tag, &b.folder)));
        Ok(found)
    }

    /// All allotments on disk. Entries not named by a tag are ignored.
    fn entries(&self) -> Result<Vec<Allotment>> {
        let failed = |error: std::io::Error| failure("list the hosts of this machine", &self.hosts, &error);
        let entries = match fs_err::read_dir(&self.hosts) {
            Ok(entries) => entries,
            Err(error) if error.kind() == Io::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            if let Some(allotment) = name.to_str().and_then(|name| self.inspect(name)) {
                found.push(allotment);
            }
        }
        Ok(found)
    }

    /// The path of the folder of this tag, existing or not.
    pub(super) fn folder(&self, tag: &Tag) -> PathBuf {
        self.hosts.join(tag.to_string())
    }

    /// The number of running processes started from host folders, by tag.
    fn running(&self) -> BTreeMap<Tag, usize> {
        let mut running = BTreeMap::new();
        for process in with_variable(TAG_VARIABLE) {
            let name = process.command.iter().find_map(|word| {
                let inside = Path::new(word).strip_prefix(&self.hosts).ok()?;
                inside.iter().next()?.to_str()
            });
            if let Some(tag) = name.and_then(|name| name.parse().ok()) {
                *running.entry(tag).or_default() += 1;
            }
        }
        running
    }

    /// Reads the entry with this name; `None` if it is not an allotment.
    fn inspect(&self, name: &str) -> Option<Allotment> {
        let folder = self.hosts.join(name);
        if let Some((tag, id)) = name.strip_prefix('.').and_then(|rest| rest.split_once(RELEASING)) {
            let condition = Condition::HalfReleased;
            return Some(Allotment { tag: tag.parse().ok()?, id: id.to_owned(), condition, folder });
        }
        let tag: Tag = name.parse().ok()?;
        let (id, condition) = match read_claim(&folder, name) {
            Ok(Some(id)) => (id, Condition::Whole),
            Ok(None) => (unclaimed_id(&tag), Condition::HalfMade),
            Err(why) => (unclaimed_id(&tag), Condition::Damaged(why)),
        };
        Some(Allotment { tag, id, condition, folder })
    }

    /// Creates or finds the folder of this tag; returns its id and whether it existed.
    pub(super) async fn claim(&self, tag: &Tag, request: &str) -> Result<(String, bool)> {
        let folder = self.folder(tag);
        let doing = format!("allocate a folder on this machine for {tag}");
        let failed = |error: &std::io::Error| failure(&doing, &folder, error).left(left_behind(&folder, tag));
        // The last release of another cluster may remove the empty parent folder during the first try.
        fs::create_private_dir(&folder)
            .or_else(|error| if error.kind() == Io::NotFound { fs::create_private_dir(&folder) } else { Err(error) })
            .map_err(|error| failed(&error))?;
        // An await point after each step, as in a call over a network.
        tokio::task::yield_now().await;
        match read_claim(&folder, &tag.to_string()) {
            Ok(Some(id)) => return Ok((id, true)),
            Ok(None) => {}
            Err(why) => {
                return Err(Error::new(ErrorKind::Provider, doing)
                    .because(format!("the claim {} is damaged: {why}", folder.join(CLAIM).display()))
                    .left(LeftBehind::Remaining(vec![unclaimed_id(tag)]))
                    .hint(format!("gpucl down -c {}", tag.cluster)));
            }
        }
        let claim = Claim {
            version: VERSION,
            tag: tag.to_string(),
            owner: tag.owner.clone(),
            cluster: tag.cluster.clone(),
            key: tag.key.clone(),
            id: format!("local-{}", random::letters(8)?),
            created: jiff::Timestamp::now(),
            request: request.to_owned(),
        };
        let text = serde_json::to_vec_pretty(&claim).map_err(|error| failed(&error.into()))?;
        if let Err(error) = fs::write_atomic(&folder.join(CLAIM), &text, 0o600) {
            // Only removes an empty folder.
            let _ = fs_err::remove_dir(&folder);
            return Err(failed(&error));
        }
        fs::sync_folder(&self.hosts)
            .map_err(|error| failed(&error).left(LeftBehind::Remaining(vec![claim.id.clone()])))?;
        tokio::task::yield_now().await;
        Ok((claim.id, false))
    }

    /// Removes the folder with this tag and id; succeeds if there is none.
    pub(super) async fn release(&self, tag: &Tag, id: &str) -> Result<()> {
        for allotment in self.entries()?.into_iter().filter(|allotment| allotment.tag == *tag && allotment.id == id) {
            let Allotment { folder, condition, .. } = allotment;
            let failed = |error: &std::io::Error| {
                failure(&format!("remove the folder of {tag}"), &folder, error)
                    .left(LeftBehind::Remaining(vec![id.to_owned()]))
            };
            let leaving = self.hosts.join(format!(".{tag}{RELEASING}{id}"));
            if condition != Condition::HalfReleased {
                // From here on it cannot be mistaken for a whole one, whatever is removed first.
                fs_err::rename(&folder, &leaving).map_err(|error| failed(&error))?;
                fs::sync_folder(&self.hosts).map_err(|error| failed(&error))?;
                tokio::task::yield_now().await;
            }
            remove(&leaving).map_err(|error| failed(&error))?;
            tokio::task::yield_now().await;
        }
        // Removes these two folders as well if they are empty.
        if fs_err::remove_dir(&self.hosts).is_ok() {
            let _ = self.hosts.parent().map(fs_err::remove_dir);
        }
        Ok(())
    }

    /// The folder of a usable allotment.
    pub(super) fn folder_of(&self, tag: &Tag, id: &str) -> Result<PathBuf> {
        let found = self.entries()?.into_iter().find(|allotment| allotment.tag == *tag && allotment.id == id);
        let cause = match found {
            Some(Allotment { condition: Condition::Whole, folder, .. }) => return Ok(folder),
            Some(allotment) => allotment.condition.to_string(),
            None => format!("no folder in {} has this tag and the id {id}", self.hosts.display()),
        };
        Err(Error::new(ErrorKind::Provider, format!("find the folder of {tag}"))
            .because(cause)
            .hint(format!("gpucl status -c {}", tag.cluster)))
    }
}

/// The id of an allotment without a claim: fixed for a tag, and never equal to that of a claim.
fn unclaimed_id(tag: &Tag) -> String {
    format!("local-unclaimed-{}", digest::short(tag.to_string().as_bytes()))
}

/// The id in the folder's claim; `None` without a claim; an error says why the claim is invalid.
fn read_claim(folder: &Path, name: &str) -> Result<Option<String>, String> {
    let bytes = match fs::read_within(&folder.join(CLAIM), fs::RECORD_LIMIT) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == Io::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let claim: ClaimHead = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if claim.tag != name {
        Err(format!("it is the claim of {}", claim.tag))
    } else if claim.version > VERSION {
        Err(format!("its version is {}, but this gpucl reads {VERSION}", claim.version))
    } else {
        Ok(Some(claim.id))
    }
}

/// Removes a folder with its content, or a file in its place.
fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_tree(path) {
        Err(error) if error.kind() == Io::NotADirectory => fs_err::remove_file(path),
        other => other.map(|_| ()),
    }
}

/// What a failed claim left behind.
fn left_behind(folder: &Path, tag: &Tag) -> LeftBehind {
    match fs_err::symlink_metadata(folder) {
        Ok(_) => LeftBehind::Remaining(vec![unclaimed_id(tag)]),
        Err(error) if error.kind() == Io::NotFound || error.kind() == Io::NotADirectory => LeftBehind::Clear,
        Err(_) => LeftBehind::Unknown,
    }
}

/// An error with the path, and a hint where one is known.
pub(super) fn failure(doing: &str, folder: &Path, error: &std::io::Error) -> Error {
    let text = error.to_string();
    let failed = Error::new(ErrorKind::Provider, doing);
    // Some of these errors already name their path.
    let cause = if text.contains('/') { text } else { format!("{}: {text}", folder.display()) };
    let failed = failed.because(cause);
    let parent = folder.parent().unwrap_or(folder);
    match error.kind() {
        Io::StorageFull | Io::QuotaExceeded => failed.hint(format!("free some space: df -h {}", parent.display())),
        Io::PermissionDenied | Io::ReadOnlyFilesystem => failed.hint(format!(
            "make it writable for your user (ls -ld {}), or set XDG_DATA_HOME to a writable folder",
            parent.display()
        )),
        Io::NotADirectory | Io::AlreadyExists => {
            failed.hint(format!("something else is in its place: ls -ld {}", parent.display()))
        }
        _ => failed,
    }
}
