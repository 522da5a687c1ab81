//! The scheduled up: an `up` that waits in the background until its hosts become available.
//!
//! A file in the cluster's state folder describes it, so that `status` can show it and `down` can end it. It holds the
//! cluster's lock while it waits.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_within, write_atomic};
use crate::util::process::Identity;

/// The version of the file format.
const VERSION: u32 = 1;
/// Timeout for ending it; it stops at any await point.
const END_LIMIT: Duration = Duration::from_secs(20);

/// The record of a scheduled up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledUp {
    version: u32,
    /// Its process as text: number, start time, boot id.
    pub process: String,
    /// When its hosts become available.
    pub at: jiff::Timestamp,
    /// What it waits for, such as a lease.
    pub what: String,
}

impl ScheduledUp {
    /// Creates the record of this process.
    pub fn this_process(at: jiff::Timestamp, what: &str) -> Option<Self> {
        let process = Identity::of(std::process::id())?.to_string();
        Some(Self { version: VERSION, process, at, what: what.to_owned() })
    }

    /// Writes the record to a cluster's state folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let file = file(folder);
        let doing = || format!("write {}", file.display());
        let text = serde_json::to_vec_pretty(self).doing(ErrorKind::Internal, doing)?;
        create_private_dir(folder).doing(ErrorKind::State, doing)?;
        write_atomic(&file, &text, 0o600).doing(ErrorKind::State, doing)
    }

    /// Reads the record of a cluster; `None` if its process no longer runs.
    pub fn of(folder: &Path) -> Option<Self> {
        let scheduled_up: Self = serde_json::from_slice(&read_within(&file(folder), RECORD_LIMIT).ok()?).ok()?;
        scheduled_up.identity().is_some_and(|identity| identity.is_alive()).then_some(scheduled_up)
    }

    /// The process that waits.
    pub fn identity(&self) -> Option<Identity> {
        self.process.parse().ok()
    }

    /// Removes the record.
    pub fn forget(folder: &Path) {
        let _ = fs_err::remove_file(file(folder));
    }

    /// Ends the process and waits until it is gone.
    pub async fn end(&self) -> Result<()> {
        let Some(identity) = self.identity() else { return Ok(()) };
        let begun = Instant::now();
        // The first signal means begin nothing more, the second stop now: it may otherwise wait for hours.
        for _ in 0..2 {
            identity.signal(rustix::process::Signal::TERM);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        while identity.is_alive() {
            if begun.elapsed() > END_LIMIT {
                return Err(Error::new(ErrorKind::Timeout, "end the scheduled up")
                    .because(format!("process {} is still there after {} s", identity.pid, END_LIMIT.as_secs()))
                    .hint(format!("kill {}; then run the command again", identity.pid)));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("scheduled-up.json")
}
