//! The limits of a cluster, a deadline or a cost, and everything needed to enforce them unattended.
//!
//! They are stored in the cluster's folder, so that any gpucl command can restart an agent that is gone.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::end::Why;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::money::{Money, describe};
use crate::state::ClusterState;
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_within, remove_file, write_atomic};
use crate::util::when::later;

/// The version of the file format.
const VERSION: u32 = 1;

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
    /// A later end that `gpucl keep` was given: neither the deadline nor idleness ends the cluster before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Timestamp>,
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

impl Limits {
    /// Creates limits with the current clocks.
    pub fn new(after_seconds: Option<u64>, at: Option<Timestamp>, max_cost: Option<Money>, start: Start) -> Self {
        Self { version: VERSION, after_seconds, at, max_cost, kept_until: None, mark: Clock::now(), start }
    }

    /// These, with this later end, if it is later than the one before.
    #[must_use]
    pub fn kept_until(mut self, until: Timestamp) -> Self {
        self.kept_until = self.kept_until.max(Some(until));
        self
    }

    /// Whether a cluster has limits: one system call; no file is opened.
    pub fn exist(folder: &Path) -> bool {
        file(folder).exists()
    }

    /// Removes the limits of a cluster.
    pub fn remove(folder: &Path) -> Result<()> {
        remove_file(&file(folder)).doing(ErrorKind::State, || "remove the deadline".to_owned())
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

    /// Writes the limits, but keeps the clocks of an earlier `up` in the same boot, and what `gpucl keep` was given for the
    /// same limits.
    pub fn write(mut self, folder: &Path) -> Result<()> {
        if let Ok(Some(before)) = Self::of(folder) {
            if before.describe() == self.describe() {
                self.kept_until = self.kept_until.max(before.kept_until);
            }
            if before.mark.boot == self.mark.boot {
                self.mark = before.mark;
            }
        }
        let path = file(folder);
        let doing = || format!("write {}", path.display());
        let text = serde_json::to_vec_pretty(&self).doing(ErrorKind::Internal, doing)?;
        create_private_dir(folder).doing(ErrorKind::State, doing)?;
        write_atomic(&path, &text, 0o600).doing(ErrorKind::State, doing)
    }

    /// The current time by the clock that has advanced more since they were first written.
    pub fn now(&self, clock: &Clock) -> Timestamp {
        self.mark.later_now(clock)
    }

    /// The deadline of a cluster that began at this time.
    pub fn ends(&self, begun: Option<Timestamp>) -> Option<Timestamp> {
        let after =
            self.after_seconds.map(|seconds| SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX)));
        let after = begun.and_then(|begun| Some(later(begun, after?)));
        let deadline = [after, self.at].into_iter().flatten().min()?;
        Some(self.kept_until.map_or(deadline, |kept| kept.max(deadline)))
    }

    /// Whether the cluster must end now. With `asked`, requests without a response count as existing.
    pub fn verdict(&self, known: &ClusterState, clock: &Clock, asked: bool) -> Option<Why> {
        let now = self.now(clock);
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

fn file(folder: &Path) -> PathBuf {
    folder.join("deadline.json")
}
