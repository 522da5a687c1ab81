//! The agent of a cluster's limits as a process: started, found, started again and ended by every command.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::credential::secrets_file;
use super::limits::{Limits, Start};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::state::Paths;
use crate::util::child;
use crate::util::fs::{RECORD_LIMIT, open_append, read_within, remove_file, write_atomic};
use crate::util::process::Identity;

/// The version of the file format.
const VERSION: u32 = 1;
/// Timeout for the agent to start, and to end; it does nothing slow before either.
const LIMIT: Duration = Duration::from_secs(10);

/// The state of the agent that enforces a cluster's limits, as it reports itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watcher {
    version: u32,
    /// Its process as text: number, start time, boot id.
    pub process: String,
    /// The number of failed attempts to take the cluster down.
    pub failed: u32,
    /// The error of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The time of the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// Whether it is taking the cluster down.
    pub acts: bool,
    /// Why it does so, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Watcher {
    /// Creates the record of this process.
    pub(super) fn this_process() -> Option<Self> {
        let process = Identity::of(std::process::id())?.to_string();
        Some(Self { version: VERSION, process, failed: 0, last_error: None, next: None, acts: false, why: None })
    }

    /// Writes the record, ignoring errors: it only informs other commands.
    pub(super) fn write(&self, folder: &Path) {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let _ = write_atomic(&watcher_file(folder), &text, 0o600);
    }

    /// Reads the record of a cluster; its process may be gone.
    pub fn of(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&read_within(&watcher_file(folder), RECORD_LIMIT).ok()?).ok()
    }

    /// Why the agent of a cluster ends it now, in words; `None` while nothing but a person does.
    pub fn why(folder: &Path) -> Option<String> {
        Self::of(folder).filter(|watcher| watcher.acts)?.why
    }

    /// Its process, if it is running.
    pub fn alive(&self) -> Option<Identity> {
        self.process.parse().ok().filter(Identity::is_alive)
    }
}

/// The process that enforces a cluster's limits; one that was killed does so no more, though it may still be there.
pub fn watcher(folder: &Path) -> Option<Identity> {
    Watcher::of(folder)?.alive().filter(Identity::goes_on)
}

/// Starts the agent of a cluster's limits in the background; it exits at once if there already is one.
pub fn start_watcher(folder: &Path, cluster: &ClusterName, start: &Start) -> Result<()> {
    let doing = || format!("start the agent for the deadline of {cluster}");
    let log = open_append(&log(folder)).doing(ErrorKind::State, doing)?;
    let errors = log.try_clone().doing(ErrorKind::State, doing)?;
    let mut command = child::command(&start.program);
    command
        .args(["agent", "--deadline", "--cluster", cluster.as_str()])
        .env_clear()
        .envs(&start.environment)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors);
    command.spawn().map(|_| ()).doing(ErrorKind::Host, doing)
}

/// Waits until the agent is running.
pub async fn wait_watched(folder: &Path, cluster: &ClusterName) -> Result<Identity> {
    let begun = Instant::now();
    loop {
        if let Some(identity) = watcher(folder) {
            return Ok(identity);
        }
        if begun.elapsed() > LIMIT {
            return Err(Error::new(ErrorKind::Timeout, format!("start the agent for the deadline of {cluster}"))
                .because(format!("it did not start within {} s", LIMIT.as_secs()))
                .hint(format!("its log is {}", log(folder).display())));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Restarts the agents that were killed, for every cluster with limits.
///
/// Every command calls this: without any limits it only lists the folder of clusters.
pub fn revive(paths: &Paths, program: Option<&Path>) -> Vec<Error> {
    let Ok(entries) = fs_err::read_dir(paths.clusters()) else { return Vec::new() };
    let mut failed = Vec::new();
    for folder in entries.flatten().map(|entry| entry.path()) {
        if !Limits::exist(&folder) || watcher(&folder).is_some() {
            continue;
        }
        let name = folder.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let (name, mut limits) = match (name, Limits::of(&folder)) {
            (Some(name), Ok(Some(limits))) => (name, limits),
            (_, Err(error)) => {
                failed.push(error);
                continue;
            }
            _ => continue,
        };
        // The running program certainly exists; the recorded one may have been replaced since.
        if let Some(program) = program {
            limits.start.program = program.to_owned();
        }
        failed.extend(start_watcher(&folder, &name, &limits.start).err());
    }
    failed
}

/// Ends the agent of a cluster's limits, and waits until it is gone. A `down` that the agent itself started leaves it
/// running: the agent notices that the cluster is gone.
pub async fn end_watcher(folder: &Path) -> Result<()> {
    let Some(identity) = Watcher::of(folder).and_then(|watcher| watcher.alive()) else { return Ok(()) };
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get().unsigned_abs());
    if parent == Some(identity.pid) {
        return Ok(());
    }
    let begun = Instant::now();
    identity.signal(rustix::process::Signal::TERM);
    while identity.is_alive() {
        if begun.elapsed() > LIMIT {
            return Err(Error::new(ErrorKind::Timeout, "end the agent for the deadline")
                .because(format!("process {} is still there after {} s", identity.pid, LIMIT.as_secs()))
                .hint(format!("kill -9 {}; then run the command again", identity.pid)));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Removes the limits of a cluster, with their credentials, agent and log.
pub async fn lift(folder: &Path) -> Result<()> {
    let doing = || "remove the deadline".to_owned();
    // First, so that no command restarts the agent.
    Limits::remove(folder)?;
    end_watcher(folder).await?;
    super::given::forget(folder).doing(ErrorKind::State, doing)?;
    super::seen::forget(folder).doing(ErrorKind::State, doing)?;
    super::notice::forget(folder).doing(ErrorKind::State, doing)?;
    for path in [secrets_file(folder), watcher_file(folder), log(folder), output_file(folder), lock_file(folder)] {
        remove_file(&path).doing(ErrorKind::State, doing)?;
    }
    Ok(())
}

fn watcher_file(folder: &Path) -> PathBuf {
    folder.join("deadline-agent.json")
}

pub(super) fn lock_file(folder: &Path) -> PathBuf {
    folder.join("deadline.lock")
}

/// The output of the last `gpucl down` at the deadline, as JSON lines.
pub(super) fn output_file(folder: &Path) -> PathBuf {
    folder.join("deadline-down.jsonl")
}

/// The agent's log.
pub fn log(folder: &Path) -> PathBuf {
    folder.join("deadline.log")
}
