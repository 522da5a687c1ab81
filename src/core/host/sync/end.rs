//! A side of a sync: a folder of this machine, or of a host.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::mpsc;

use super::batch::{Batch, ByFolder};
use super::exclude::Excludes;
use super::here::Here;
use super::part::{Digest, Part};
use super::there::There;
use super::tree::{Below, Entry, Scope, Tree};
use crate::error::{Doing as _, ErrorKind, Result};
use crate::host::LeftOut;

/// The permissions that files from a host or a job may have here, if the umask allows them: only their owner writes them.
const MODE_HERE: u32 = 0o755;
/// The permissions that are kept on a host.
const MODE_THERE: u32 = 0o777;

/// A side of a sync.
#[derive(Clone)]
pub enum End<'a> {
    /// On this machine.
    Here(Here),
    /// On a host.
    There(There<'a>),
}

/// The permissions that this process gives to no file. The system call that tells would change them for all threads.
fn umask() -> u32 {
    let status = fs_err::read_to_string("/proc/self/status").unwrap_or_default();
    let digits = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    digits.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok()).unwrap_or(0o022)
}

/// Runs what reads and writes files of this machine.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.doing(ErrorKind::Internal, || "sync files of this machine".to_owned())?
}

impl End<'_> {
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Here(here) => here.shown(),
            Self::There(there) => there.shown(),
        }
    }

    pub(super) fn name(&self) -> Below {
        match self {
            Self::Here(here) => here.name(),
            Self::There(there) => there.name(),
        }
    }

    pub(super) fn folder(&self) -> Self {
        match self {
            Self::Here(here) => Self::Here(here.folder()),
            Self::There(there) => Self::There(there.folder()),
        }
    }

    /// Whether the path says that it is a folder: by a slash at its end, or because it has no name.
    pub(super) fn ends_as_folder(&self) -> bool {
        let ends = match self {
            Self::Here(here) => here.path.as_os_str().as_encoded_bytes().ends_with(b"/"),
            Self::There(there) => there.path.ends_with('/'),
        };
        ends || self.name().is_empty()
    }

    pub(super) fn kept_mode(&self) -> u32 {
        match self {
            Self::Here(_) => MODE_HERE & !umask(),
            Self::There(_) => MODE_THERE,
        }
    }

    pub(super) fn changes_modes(&self) -> bool {
        match self {
            Self::Here(_) => true,
            Self::There(there) => there.changes_modes(),
        }
    }

    pub(super) async fn list(&self, scope: &Scope, excludes: &Excludes) -> Result<Tree> {
        match self {
            Self::Here(here) => {
                let (here, scope, excludes) = (here.clone(), scope.clone(), excludes.clone());
                blocking(move || here.list(&scope, &excludes)).await
            }
            Self::There(there) => there.list(scope, excludes).await,
        }
    }

    pub(super) async fn digests(&self, paths: &[Below]) -> Result<BTreeMap<Below, Digest>> {
        match self {
            Self::Here(here) => {
                let (here, paths) = (here.clone(), paths.to_vec());
                blocking(move || here.digests(&paths)).await
            }
            Self::There(there) => there.digests(paths).await,
        }
    }

    pub(super) async fn digest_of_start(&self, path: &[u8], length: u64) -> Result<Option<Digest>> {
        match self {
            Self::Here(here) => {
                let (here, path) = (here.clone(), path.to_vec());
                blocking(move || here.digest_of_start(&path, length)).await
            }
            Self::There(there) => there.digest_of_start(path, length).await,
        }
    }

    pub(super) async fn give(&self, entries: &[(Below, Entry)], into: mpsc::Sender<Vec<u8>>) -> Result<()> {
        match self {
            Self::Here(here) => {
                let (here, entries) = (here.clone(), entries.to_vec());
                blocking(move || here.give(&entries, into)).await
            }
            Self::There(there) => there.give(entries.iter().map(|(path, _)| path.clone()).collect(), into).await,
        }
    }

    pub(super) async fn take(
        &self,
        batch: &Batch,
        entries: &[(Below, Entry)],
        from: mpsc::Receiver<Vec<u8>>,
    ) -> Result<(Vec<Below>, LeftOut)> {
        match self {
            Self::Here(here) => {
                let (here, entries, mode) = (here.clone(), entries.to_vec(), self.kept_mode());
                let batch = Batch { names: BTreeSet::new(), moves: batch.moves.clone(), bytes: batch.bytes };
                blocking(move || here.take(&batch, &entries, mode, from)).await
            }
            Self::There(there) => there.take(batch, from).await.map(|()| (Vec::new(), LeftOut::default())),
        }
    }

    pub(super) async fn give_part(&self, part: &Part, into: mpsc::Sender<Vec<u8>>) -> Result<()> {
        match self {
            Self::Here(here) => {
                let (here, part) = (here.clone(), part.clone());
                blocking(move || here.give_part(&part, &into)).await
            }
            Self::There(there) => there.give_part(part, into).await,
        }
    }

    pub(super) async fn take_part(&self, part: &Part, from: mpsc::Receiver<Vec<u8>>) -> Result<()> {
        match self {
            Self::Here(here) => {
                let (here, part) = (here.clone(), part.clone());
                blocking(move || here.take_part(&part, from)).await
            }
            Self::There(there) => there.take_part(part, from).await,
        }
    }

    /// Makes the folder, and removes names in it.
    pub(super) async fn remove(&self, groups: &ByFolder) -> Result<()> {
        match self {
            Self::Here(here) => {
                let (here, groups) = (here.clone(), groups.clone());
                blocking(move || here.remove(&groups)).await
            }
            Self::There(there) => there.remove(groups).await,
        }
    }

    pub(super) async fn set_modes(&self, modes: &BTreeMap<u32, ByFolder>) -> Result<()> {
        match self {
            Self::Here(here) => {
                let (here, modes) = (here.clone(), modes.clone());
                blocking(move || here.set_modes(&modes)).await
            }
            Self::There(there) => there.set_modes(modes).await,
        }
    }
}
