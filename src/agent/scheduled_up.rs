//! An armed start: an `up` that waits, detached from whoever asked for it, until its hosts can be had.
//!
//! It is written into the cluster's state folder, so that `status` can tell of it and `down` can end it. It holds the cluster's
//! lock for as long as it waits.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_within, write_atomic};
use crate::util::process::Identity;

/// The version of the file's form.
const VERSION: u32 = 1;
/// How long it may take to end; it stops at any await.
const END_LIMIT: Duration = Duration::from_secs(20);

/// What is known of an armed start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledUp {
    version: u32,
    /// Its process: number, start, boot.
    pub process: String,
    /// When what it waits for begins.
    pub at: jiff::Timestamp,
    /// What begins then.
    pub what: String,
}

impl ScheduledUp {
    /// This process waits.
    pub fn this_process(at: jiff::Timestamp, what: &str) -> Option<Self> {
        let process = Identity::of(std::process::id())?.to_string();
        Some(Self { version: VERSION, process, at, what: what.to_owned() })
    }

    /// Writes it into a cluster's state folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let file = file(folder);
        let doing = || format!("write {}", file.display());
        let text = serde_json::to_vec_pretty(self).doing(ErrorKind::Internal, doing)?;
        create_private_dir(folder).doing(ErrorKind::State, doing)?;
        write_atomic(&file, &text, 0o600).doing(ErrorKind::State, doing)
    }

    /// The one of this cluster that waits now; a file that a killed one left says nothing.
    pub fn of(folder: &Path) -> Option<Self> {
        let scheduled_up: Self = serde_json::from_slice(&read_within(&file(folder), RECORD_LIMIT).ok()?).ok()?;
        scheduled_up.identity().is_some_and(|identity| identity.is_alive()).then_some(scheduled_up)
    }

    /// Its process.
    pub fn identity(&self) -> Option<Identity> {
        self.process.parse().ok()
    }

    /// It waits no more.
    pub fn forget(folder: &Path) {
        let _ = fs_err::remove_file(file(folder));
    }

    /// Ends it, and waits until its process is gone.
    pub async fn end(&self) -> Result<()> {
        let Some(identity) = self.identity() else { return Ok(()) };
        let begun = Instant::now();
        // Once: begin nothing more. Twice: stop now. It waits, and may wait for hours.
        for _ in 0..2 {
            identity.signal(rustix::process::Signal::TERM);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        while identity.is_alive() {
            if begun.elapsed() > END_LIMIT {
                return Err(Error::new(ErrorKind::Timeout, "end the scheduled_up start")
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
