//! The one notion of when a cluster ends, and by what: the earliest of its lease or wall clock, `deadline`, `max_cost`, and
//! idleness.
//!
//! Commands show it, the agent acts by it, and hosts are given it, as they must save before it without this machine.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::limits::Limits;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::providers;
use crate::state::ClusterState;
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_within, write_atomic};
use crate::util::when::{between, later};

/// The version of the file format, and of what hosts are given.
const VERSION: u32 = 1;

/// What ends a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The lease of its hosts.
    Lease,
    /// The time limit of the job that its hosts belong to.
    WallClock,
    /// Its `deadline`.
    Deadline,
    /// Its `max_cost`.
    Cost,
    /// Nobody uses it.
    Idle,
}

impl Cause {
    /// Whether gpucl alone ends it: nothing else does while this machine is off.
    pub fn is_ours(self) -> bool {
        match self {
            Self::Lease | Self::WallClock => false,
            Self::Deadline | Self::Cost | Self::Idle => true,
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Lease => "the lease ends",
            Self::WallClock => "the job of its hosts reaches its time limit",
            Self::Deadline => "its deadline is reached",
            Self::Cost => "its `max_cost` is reached",
            Self::Idle => "nobody uses it",
        })
    }
}

/// When a cluster ends, and by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub at: Timestamp,
    /// By what.
    pub why: Cause,
}

impl End {
    /// The earliest known end of a cluster, from the files in its folder and its state; idleness is not looked at.
    pub fn of(folder: &Path, known: &ClusterState) -> Option<Self> {
        let limits = Limits::of(folder).ok().flatten();
        Self::all(limits.as_ref(), known, Timestamp::now()).into_iter().next()
    }

    /// All known ends, the earliest first.
    pub fn all(limits: Option<&Limits>, known: &ClusterState, now: Timestamp) -> Vec<Self> {
        let of_hosts = known.ends().map(|at| Self { at, why: reservation(known) });
        let deadline = limits.and_then(|limits| limits.ends(known.begun)).map(|at| Self { at, why: Cause::Deadline });
        let cost = limits.and_then(|limits| limits.cost_ends(known, now)).map(|at| Self { at, why: Cause::Cost });
        let mut all: Vec<Self> = [of_hosts, deadline, cost].into_iter().flatten().collect();
        all.sort_by_key(|end| end.at);
        all
    }
}

/// What kind of reservation the hosts of a cluster have.
fn reservation(known: &ClusterState) -> Cause {
    let name = known.spec.as_ref().map(|spec| spec.provider.name());
    match name.and_then(|name| providers::find(name).ok()) {
        Some(factory) if !factory.capability().reserves => Cause::WallClock,
        _ => Cause::Lease,
    }
}

/// The end of a cluster as its hosts are given it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
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

impl Told {
    /// What the hosts of a cluster were given last.
    pub fn last(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&read_within(&file(folder), RECORD_LIMIT).ok()?).ok()
    }

    /// What to give the hosts of a cluster now, with a new revision above `seen`, the highest that a host has reported. It is
    /// recorded first: no revision is ever used for two ends.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn next(folder: &Path, end: Option<End>, seen: u64) -> Result<Self> {
        let last = Self::last(folder).map_or(0, |last| last.revision);
        let limits = Limits::of(folder).ok().flatten();
        let now = limits.map_or_else(Timestamp::now, |limits| limits.now(&Clock::now()));
        let told = Self {
            v: VERSION,
            at: end.map(|end| end.at),
            left_s: end.map(|end| between(now, end.at).as_secs().max(0)),
            why: end.map(|end| end.why.to_string()).unwrap_or_default(),
            revision: last.max(seen) + 1,
        };
        let path = file(folder);
        let doing = || format!("write {}", path.display());
        let text = serde_json::to_vec(&told).doing(ErrorKind::Internal, doing)?;
        create_private_dir(folder).doing(ErrorKind::State, doing)?;
        write_atomic(&path, &text, 0o600).doing(ErrorKind::State, doing)?;
        Ok(told)
    }

    /// Whether this is still the end: a cost's moves a little with each estimate.
    pub fn is(&self, end: Option<End>) -> bool {
        match (self.at, end) {
            (None, None) => true,
            (Some(at), Some(end)) => {
                let moved = between(at, end.at).abs();
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

/// Removes the record of what hosts were given.
pub(super) fn forget(folder: &Path) -> std::io::Result<()> {
    crate::util::fs::remove_file(&file(folder))
}

fn file(folder: &Path) -> PathBuf {
    folder.join("end.json")
}

/// When an end is announced that comes at `at`: so long before it.
pub fn before(at: Timestamp, by: std::time::Duration) -> Timestamp {
    later(at, -SignedDuration::try_from(by).unwrap_or_default())
}
