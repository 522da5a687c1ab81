//! What ends a cluster by itself: a time, or what it has cost; and what is needed to act on it without anybody.
//!
//! It lies in the cluster's folder, so that any gpucl that finds it unattended can start again what looks after it.

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
use crate::util::fs::{RECORD_LIMIT, create_private_dir, open_append, read_within, write_atomic};
use crate::util::process::{Identity, boot_id};
use crate::util::when::later;

/// The version of the files' form.
const VERSION: u32 = 1;
/// How long it may take to begin, and to end; it does nothing slow before either.
const LIMIT: Duration = Duration::from_secs(10);

/// What the clocks of this machine say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The time of day; people and time servers change it.
    pub wall: Timestamp,
    /// How long ago this machine was started, sleep included, in milliseconds; nobody changes it.
    pub since_boot_ms: i64,
    /// Which start that was.
    pub boot: String,
}

impl Clock {
    /// What they say now.
    pub fn now() -> Self {
        let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Self { wall: Timestamp::now(), since_boot_ms: since.tv_sec * 1000 + since.tv_nsec / 1_000_000, boot: boot_id() }
    }

    /// What the time is now, by the clock that is ahead since this was written: a clock that is put back gives no more time.
    fn later_now(&self, now: &Self) -> Timestamp {
        if self.boot != now.boot {
            return now.wall;
        }
        let elapsed = SignedDuration::from_millis(now.since_boot_ms - self.since_boot_ms);
        now.wall.max(later(self.wall, elapsed))
    }
}

/// When a cluster ends by itself, and how that is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    version: u32,
    /// So long after its first host was acquired, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seconds: Option<u64>,
    /// At this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// When it has cost so much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Money>,
    /// The clocks when this was first written.
    pub mark: Clock,
    /// What acts.
    pub start: Start,
}

/// How gpucl is started to act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// gpucl itself.
    pub program: PathBuf,
    /// What of the environment it is given; credentials lie in a file of their own.
    pub environment: BTreeMap<String, String>,
    /// The folder that it works in.
    pub here: PathBuf,
}

/// Why a cluster ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Its time is over.
    Deadline(Timestamp),
    /// It has cost as much as it may.
    Cost(Money),
}

impl std::fmt::Display for Why {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Deadline(at) => write!(out, "its deadline, {}, has come", crate::util::human::local(*at)),
            Self::Cost(limit) => write!(out, "it has cost about {limit}, which is its `max_cost`"),
        }
    }
}

impl Limits {
    /// Limits that are written down now.
    pub fn new(after_seconds: Option<u64>, at: Option<Timestamp>, max_cost: Option<Money>, start: Start) -> Self {
        Self { version: VERSION, after_seconds, at, max_cost, mark: Clock::now(), start }
    }

    /// Those of a cluster; `None` when it has none. What cannot be read is an error.
    pub fn of(folder: &Path) -> Result<Option<Self>> {
        let path = file(folder);
        let doing = || format!("read {}", path.display());
        match read_within(&path, RECORD_LIMIT) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).doing(ErrorKind::State, doing),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).doing(ErrorKind::State, doing),
        }
    }

    /// Writes them down; what an earlier `up` noted of the clocks in this boot holds still.
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

    /// When the time of a cluster is over that began then.
    pub fn ends(&self, begun: Option<Timestamp>) -> Option<Timestamp> {
        let after =
            self.after_seconds.map(|seconds| SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX)));
        let after = begun.and_then(|begun| Some(later(begun, after?)));
        [after, self.at].into_iter().flatten().min()
    }

    /// Whether the cluster is to end now; `asked` when what was asked for and never answered is to be counted as there.
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

    /// When the cost reaches its limit as things are, where it will.
    pub fn cost_ends(&self, known: &ClusterState, now: Timestamp) -> Option<Timestamp> {
        let limit = self.max_cost?;
        let spending = known.spending(now);
        let of_unit = |sums: &[Money]| sums.iter().find(|sum| sum.unit == limit.unit).map_or(0, |sum| sum.micros);
        let left = Money { micros: limit.micros.saturating_sub(of_unit(&spending.so_far)), ..limit };
        let per_hour = crate::money::HourlyPrice(Money { micros: of_unit(&spending.per_hour), ..limit });
        let time = SignedDuration::try_from(per_hour.time_for(left)?).ok()?;
        Some(later(now, time))
    }

    /// What they say, in words: `at most 3h after its first host, at most 40.00 USD`.
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

/// Keeps credentials for whoever acts when nobody is there; with none, those of an earlier `up` are removed.
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

/// The credentials that are kept, by the names of their variables.
pub fn kept_secrets(folder: &Path) -> BTreeMap<String, SecretString> {
    let plain: Option<BTreeMap<String, String>> =
        read_within(&secrets_file(folder), RECORD_LIMIT).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    plain.unwrap_or_default().into_iter().map(|(name, secret)| (name, SecretString::from(secret))).collect()
}

/// Where credentials are kept.
pub fn secrets_file(folder: &Path) -> PathBuf {
    folder.join("secrets").join("environment.json")
}

/// What looks after a cluster's limits, as it tells of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watcher {
    version: u32,
    /// Its process: number, start, boot.
    pub process: String,
    /// How often it has tried to take the cluster down, and failed.
    pub failed: u32,
    /// Why the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When it tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// It is taking the cluster down.
    pub acts: bool,
}

impl Watcher {
    /// This process looks after it.
    pub(super) fn this_process() -> Option<Self> {
        let process = Identity::of(std::process::id())?.to_string();
        Some(Self { version: VERSION, process, failed: 0, last_error: None, next: None, acts: false })
    }

    /// Writes it down. Nothing depends on it but what others are told.
    pub(super) fn write(&self, folder: &Path) {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let _ = write_atomic(&watcher_file(folder), &text, 0o600);
    }

    /// The last one of a cluster, which may be no more.
    pub fn of(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&read_within(&watcher_file(folder), RECORD_LIMIT).ok()?).ok()
    }

    /// Its process, while it runs.
    pub fn alive(&self) -> Option<Identity> {
        self.process.parse().ok().filter(Identity::is_alive)
    }
}

/// What looks after a cluster's limits now.
pub fn watcher(folder: &Path) -> Option<Identity> {
    Watcher::of(folder)?.alive()
}

/// Starts what looks after a cluster's limits, away from the terminal; it ends at once when there is one already.
pub fn start_watcher(folder: &Path, cluster: &ClusterName, start: &Start) -> Result<()> {
    let doing = || format!("start what looks after the deadline of {cluster}");
    let log = open_append(&log(folder)).doing(ErrorKind::State, doing)?;
    let errors = log.try_clone().doing(ErrorKind::State, doing)?;
    let mut command = std::process::Command::new(&start.program);
    command
        .args(["agent", "--deadline", "--cluster", cluster.as_str()])
        .env_clear()
        .envs(&start.environment)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .current_dir("/");
    command.spawn().map(|_| ()).doing(ErrorKind::Host, doing)
}

/// Waits until it looks after the limits.
pub async fn wait_watched(folder: &Path, cluster: &ClusterName) -> Result<Identity> {
    let begun = Instant::now();
    loop {
        if let Some(identity) = watcher(folder) {
            return Ok(identity);
        }
        if begun.elapsed() > LIMIT {
            return Err(Error::new(ErrorKind::Timeout, format!("start what looks after the deadline of {cluster}"))
                .because(format!("it did not begin within {} s", LIMIT.as_secs()))
                .hint(format!("its log is {}", log(folder).display())));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Starts again what looks after limits and was killed, for every cluster that has some.
///
/// It is called by every command: where no cluster has limits it costs one look into the folder of clusters.
pub fn revive(paths: &Paths, program: Option<&Path>) -> Vec<Error> {
    let Ok(entries) = fs_err::read_dir(paths.clusters()) else { return Vec::new() };
    let mut failed = Vec::new();
    for folder in entries.flatten().map(|entry| entry.path()) {
        // One call where there is none; no file is opened.
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
        // This very program is there for sure; the one that wrote it down may have been replaced since.
        if let Some(program) = program {
            limits.start.program = program.to_owned();
        }
        failed.extend(start_watcher(&folder, &name, &limits.start).err());
    }
    failed
}

/// Ends what looks after a cluster's limits, and waits until it is gone. Who was started by it leaves it: it sees for itself
/// that the cluster is gone.
pub async fn end_watcher(folder: &Path) -> Result<()> {
    let Some(identity) = watcher(folder) else { return Ok(()) };
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get().unsigned_abs());
    if parent == Some(identity.pid) {
        return Ok(());
    }
    let begun = Instant::now();
    identity.signal(rustix::process::Signal::TERM);
    while identity.is_alive() {
        if begun.elapsed() > LIMIT {
            return Err(Error::new(ErrorKind::Timeout, "end what looks after the deadline")
                .because(format!("process {} is still there after {} s", identity.pid, LIMIT.as_secs()))
                .hint(format!("kill -9 {}; then run the command again", identity.pid)));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Removes the limits of a cluster, with what was kept for them and what looks after them.
pub async fn lift(folder: &Path) -> Result<()> {
    let doing = || "remove the deadline".to_owned();
    // First: what looks after it is not started again.
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

/// What the last `gpucl down` at the deadline said, as JSON lines.
pub(super) fn output_file(folder: &Path) -> PathBuf {
    folder.join("deadline-down.jsonl")
}

/// The log of what looks after the limits.
pub fn log(folder: &Path) -> PathBuf {
    folder.join("deadline.log")
}
