//! The limits of a cluster, a deadline or a cost, and everything needed to enforce them unattended.
//!
//! They are stored in the cluster's folder, so that any gpucl command can restart an agent that is gone.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::money::{Money, describe};
use crate::name::ClusterName;
use crate::state::{ClusterState, Paths};
use crate::util::child;
use crate::util::fs::{RECORD_LIMIT, create_private_dir, open_append, read_within, write_atomic};
use crate::util::process::{Identity, boot_id};
use crate::util::when::later;

/// The version of the file formats.
const VERSION: u32 = 1;
/// Timeout for the agent to start, and to end; it does nothing slow before either.
const LIMIT: Duration = Duration::from_secs(10);

/// A reading of this machine's clocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The wall clock, which people and time servers may set.
    pub wall: Timestamp,
    /// The time since boot in milliseconds, including sleep; it cannot be set.
    pub since_boot_ms: i64,
    /// The boot id.
    pub boot: String,
}

impl Clock {
    /// Reads the clocks.
    pub fn now() -> Self {
        let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Self { wall: Timestamp::now(), since_boot_ms: since.tv_sec * 1000 + since.tv_nsec / 1_000_000, boot: boot_id() }
    }

    /// The current time by the clock that has advanced more since this reading: setting a clock back gains no time.
    fn later_now(&self, now: &Self) -> Timestamp {
        if self.boot != now.boot {
            return now.wall;
        }
        let elapsed = SignedDuration::from_millis(now.since_boot_ms - self.since_boot_ms);
        now.wall.max(later(self.wall, elapsed))
    }
}

/// The limits of a cluster, and how to enforce them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    version: u32,
    /// The deadline in seconds after the first host was acquired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seconds: Option<u64>,
    /// The deadline as a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The cost limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Money>,
    /// The clocks when the limits were first written.
    pub mark: Clock,
    /// How to start the agent.
    pub start: Start,
}

/// How to start the agent, and its `gpucl down`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The gpucl executable.
    pub program: PathBuf,
    /// Its environment variables, without credentials, which have a separate file.
    pub environment: BTreeMap<String, String>,
    /// The working folder.
    pub here: PathBuf,
}

/// Why a cluster ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Its deadline has passed.
    Deadline(Timestamp),
    /// Its cost has reached the limit.
    Cost(Money),
}

impl std::fmt::Display for Why {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Deadline(at) => write!(out, "its deadline, {}, has passed", crate::util::human::local(*at)),
            Self::Cost(limit) => write!(out, "it has cost about {limit}, which is its `max_cost`"),
        }
    }
}

impl Limits {
    /// Creates limits with the current clocks.
    pub fn new(after_seconds: Option<u64>, at: Option<Timestamp>, max_cost: Option<Money>, start: Start) -> Self {
        Self { version: VERSION, after_seconds, at, max_cost, mark: Clock::now(), start }
    }

    /// Reads the limits of a cluster; `None` if it has none. An unreadable file is an error.
    pub fn of(folder: &Path) -> Result<Option<Self>> {
        let path = file(folder);
        let doing = || format!("read {}", path.display());
        match read_within(&path, RECORD_LIMIT) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).doing(ErrorKind::State, doing),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).doing(ErrorKind::State, doing),
        }
    }

    /// Writes the limits, but keeps the clocks of an earlier `up` in the same boot.
    pub fn write(mut self, folder: &Path) -> Result<()> {
        if let Ok(Some(before)) = Self::of(folder)
            && before.mark.boot == self.mark.boot
        {
            self.mark = before.mark;
        }
        let path = file(folder);
        let doing = || format!("write {}", path.display());
        let text = serde_json::to_vec_pretty(&self).doing(ErrorKind::Internal, doing)?;
        create_private_dir(folder).doing(ErrorKind::State, doing)?;
        write_atomic(&path, &text, 0o600).doing(ErrorKind::State, doing)
    }

    /// The deadline of a cluster that began at this time.
    pub fn ends(&self, begun: Option<Timestamp>) -> Option<Timestamp> {
        let after =
            self.after_seconds.map(|seconds| SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX)));
        let after = begun.and_then(|begun| Some(later(begun, after?)));
        [after, self.at].into_iter().flatten().min()
    }

    /// Whether the cluster must end now. With `asked`, requests without a response count as existing.
    pub fn verdict(&self, known: &ClusterState, clock: &Clock, asked: bool) -> Option<Why> {
        let now = self.mark.later_now(clock);
        let begun = if asked { known.begun_at_most() } else { known.begun };
        if let Some(at) = self.ends(begun).filter(|at| *at <= now) {
            return Some(Why::Deadline(at));
        }
        let limit = self.max_cost?;
        let spending = if asked { known.spending_at_most(now) } else { known.spending(now) };
        let is_over = |sum: &Money| sum.unit == limit.unit && sum.micros >= limit.micros;
        spending.so_far.iter().any(is_over).then_some(Why::Cost(limit))
    }

    /// When the cost reaches its limit at the current rate, if ever.
    pub fn cost_ends(&self, known: &ClusterState, now: Timestamp) -> Option<Timestamp> {
        let limit = self.max_cost?;
        let spending = known.spending(now);
        let of_unit = |sums: &[Money]| sums.iter().find(|sum| sum.unit == limit.unit).map_or(0, |sum| sum.micros);
        let left = Money { micros: limit.micros.saturating_sub(of_unit(&spending.so_far)), ..limit };
        let per_hour = crate::money::HourlyPrice(Money { micros: of_unit(&spending.per_hour), ..limit });
        let time = SignedDuration::try_from(per_hour.time_for(left)?).ok()?;
        Some(later(now, time))
    }

    /// Describes them: `3h after its first host was acquired, or when it has cost about 40.00 USD`.
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.after_seconds.map(|seconds| {
            let time = crate::util::human::duration(Duration::from_secs(seconds));
            format!("{time} after its first host was acquired")
        }));
        parts.extend(self.at.map(|at| format!("at {}", crate::util::human::local(at))));
        parts.extend(self.max_cost.map(|cost| format!("when it has cost about {}", describe(&[cost]))));
        parts.join(", or ")
    }
}

/// Stores credentials for the agent; an empty map removes those of an earlier `up`.
pub fn keep_secrets(folder: &Path, secrets: &BTreeMap<String, SecretString>) -> Result<()> {
    let path = secrets_file(folder);
    let doing = || format!("write {}", path.display());
    if secrets.is_empty() {
        return remove(&path).doing(ErrorKind::State, doing);
    }
    let plain: BTreeMap<&str, &str> =
        secrets.iter().map(|(name, secret)| (name.as_str(), secret.expose_secret())).collect();
    let text = serde_json::to_vec(&plain).doing(ErrorKind::Internal, doing)?;
    path.parent().map_or(Ok(()), create_private_dir).doing(ErrorKind::State, doing)?;
    write_atomic(&path, &text, 0o600).doing(ErrorKind::State, doing)
}

/// The stored credentials, by variable name.
pub fn kept_secrets(folder: &Path) -> BTreeMap<String, SecretString> {
    let plain: Option<BTreeMap<String, String>> =
        read_within(&secrets_file(folder), RECORD_LIMIT).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    plain.unwrap_or_default().into_iter().map(|(name, secret)| (name, SecretString::from(secret))).collect()
}

/// The file with the stored credentials.
pub fn secrets_file(folder: &Path) -> PathBuf {
    folder.join("secrets").join("environment.json")
}

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
}

impl Watcher {
    /// Creates the record of this process.
    pub(super) fn this_process() -> Option<Self> {
        let process = Identity::of(std::process::id())?.to_string();
        Some(Self { version: VERSION, process, failed: 0, last_error: None, next: None, acts: false })
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
        // One system call if there are no limits; no file is opened.
        if !file(&folder).exists() || watcher(&folder).is_some() {
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
    remove(&file(folder)).doing(ErrorKind::State, doing)?;
    end_watcher(folder).await?;
    for path in [secrets_file(folder), watcher_file(folder), log(folder), output_file(folder), lock_file(folder)] {
        remove(&path).doing(ErrorKind::State, doing)?;
    }
    Ok(())
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("deadline.json")
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
