//! What ends a cluster, when, and why it ends now.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::money::Money;
use crate::util::human;
use crate::util::when::{earlier, later};

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

/// How long before a wall clock all has to be saved: a job's programs are asked to end all at once, the guard as well, and
/// Slurm may do so some seconds early.
const BEFORE_A_WALL_CLOCK: SignedDuration = SignedDuration::from_secs(20);

impl End {
    /// When it comes for what runs on hosts.
    pub(super) fn on_hosts(&self) -> Timestamp {
        if self.why == Cause::WallClock { earlier(self.at, BEFORE_A_WALL_CLOCK) } else { self.at }
    }

    /// When an announcement comes that is made so long before it.
    pub fn before(&self, by: std::time::Duration) -> Timestamp {
        later(self.at, -SignedDuration::try_from(by).unwrap_or_default())
    }
}

/// Why a cluster ends now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Its deadline has passed.
    Deadline(Timestamp),
    /// Its cost has reached the limit.
    Cost(Money),
    /// All is saved before this end, or it has come.
    End(End),
    /// Nobody has used it since.
    Idle(Timestamp),
}

impl std::fmt::Display for Why {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Deadline(at) => write!(out, "its deadline, {}, has passed", human::local(*at)),
            Self::Cost(limit) => write!(out, "it has cost about {limit}, which is its `max_cost`"),
            Self::End(end) if end.at > Timestamp::now() => {
                write!(out, "all is saved, and {} at {}", end.why, human::local(end.at))
            }
            Self::End(end) => write!(out, "{} at {}", end.why, human::local(end.at)),
            Self::Idle(since) => write!(out, "nobody has used it since {}", human::local(*since)),
        }
    }
}
