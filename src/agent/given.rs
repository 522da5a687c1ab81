//! The end of a cluster as its hosts were given it.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::end::{Cause, End};
use super::limits::Limits;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fs::{RECORD_LIMIT, create_private_dir, open_append, read_within, remove_file, write_atomic};
use crate::util::when::between;

/// The version of the file format, and of what hosts are given.
const VERSION: u32 = 1;
/// How long another process may hold the record: it reads one small file and writes one.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

/// The end of a cluster as its hosts are given it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenEnd {
    v: u32,
    /// When, by a wall clock; `None` calls an end off.
    pub at: Option<Timestamp>,
    /// The time until then, in seconds, by the clocks of this machine when it was written.
    pub left_s: Option<i64>,
    /// By what, in words.
    pub why: String,
    /// A number that rises with each: a host ignores what is older than what it knows.
    pub revision: u64,
}

impl GivenEnd {
    /// What the hosts of a cluster were given last.
    pub fn last(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&read_within(&file(folder), RECORD_LIMIT).ok()?).ok()
    }

    /// What to give the hosts of a cluster now, with a new revision above `seen`, the highest that a host has reported. It is
    /// recorded first, one process at a time: no revision is ever used for two ends.
    ///
    /// # Errors
    /// If the record cannot be written, or another process holds it for seconds.
    pub fn next(folder: &Path, end: Option<End>, seen: u64) -> Result<Self> {
        let doing = || format!("write {}", file(folder).display());
        create_private_dir(folder).doing(ErrorKind::State, doing)?;
        let _lock = lock(folder)?;
        let last = Self::last(folder).map_or(0, |last| last.revision);
        let given = Self {
            v: VERSION,
            at: end.map(|end| end.on_hosts()),
            left_s: end.map(|end| left(folder, end.on_hosts())),
            why: end.map(|end| end.why.to_string()).unwrap_or_default(),
            revision: last.max(seen) + 1,
        };
        let text = serde_json::to_vec(&given).doing(ErrorKind::Internal, doing)?;
        write_atomic(&file(folder), &text, 0o600).doing(ErrorKind::State, doing)?;
        Ok(given)
    }

    /// The same again, with the time that is left now: a guard that knows it ignores it.
    #[must_use]
    pub fn again(self, folder: &Path) -> Self {
        let left_s = self.at.map(|at| left(folder, at));
        Self { left_s, ..self }
    }

    /// What every guard ignores: it only prints its state.
    pub fn nothing() -> Self {
        Self { v: VERSION, at: None, left_s: None, why: String::new(), revision: 0 }
    }

    /// Whether this is still the end: a cost's moves a little with each estimate.
    pub fn is(&self, end: Option<End>) -> bool {
        match (self.at, end) {
            (None, None) => true,
            (Some(at), Some(end)) => {
                let moved = between(at, end.on_hosts()).abs();
                let slack = if end.why == Cause::Cost { SignedDuration::from_secs(20) } else { SignedDuration::ZERO };
                moved <= slack && self.why == end.why.to_string()
            }
            _ => false,
        }
    }

    /// The text that a host reads.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn text(&self) -> Result<String> {
        serde_json::to_string(self).doing(ErrorKind::Internal, || "write the end of the cluster".to_owned())
    }
}

/// The time until then in seconds, by the clock of this machine that has advanced more.
fn left(folder: &Path, at: Timestamp) -> i64 {
    let limits = Limits::of(folder).ok().flatten();
    let now = limits.map_or_else(Timestamp::now, |limits| limits.now(&Clock::now()));
    between(now, at).as_secs().max(0)
}

/// Takes the lock of the record, which is given back when the file is closed. The cluster's own lock is no use here: an `up`
/// has it for minutes, while the agent gives hosts a moved end.
fn lock(folder: &Path) -> Result<File> {
    let (path, begun) = (lock_file(folder), Instant::now());
    let doing = || format!("lock {}", path.display());
    let lock = open_append(&path).doing(ErrorKind::State, doing)?;
    while lock.try_lock().is_err() {
        if begun.elapsed() > LOCK_LIMIT {
            return Err(Error::new(ErrorKind::Locked, doing())
                .because(format!("another gpucl still has it after {} s", LOCK_LIMIT.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(lock)
}

/// Removes the record of what hosts were given.
pub(super) fn forget(folder: &Path) -> std::io::Result<()> {
    remove_file(&file(folder))?;
    remove_file(&lock_file(folder))
}

fn file(folder: &Path) -> PathBuf {
    folder.join("end.json")
}

fn lock_file(folder: &Path) -> PathBuf {
    folder.join("end.lock")
}
