//! The one notion of when a cluster ends: the earliest of its lease or wall clock, `deadline`, `max_cost`, and idleness.
//!
//! Commands show it, the agent acts by it, and hosts are given it, as they must save before it without this machine.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};

use super::end::{Cause, End};
use super::limits::Limits;
use super::seen::GuardsReport;
use crate::providers;
use crate::spec::{IdleSpec, Spec};
use crate::state::ClusterState;
use crate::util::when::later;

impl End {
    /// The earliest known end of a cluster, from the files in its folder and its state; idleness is not looked at.
    pub fn of(folder: &Path, known: &ClusterState) -> Option<Self> {
        let limits = Limits::of(folder).ok().flatten();
        Self::all(limits.as_ref(), known, Timestamp::now()).into_iter().next()
    }

    /// The end that the hosts of a cluster have.
    pub fn of_hosts(spec: &Spec, at: Timestamp) -> Self {
        let reserves = providers::find(spec.provider.name()).is_ok_and(|factory| factory.capability().reserves);
        Self { at, why: if reserves { Cause::Lease } else { Cause::WallClock } }
    }

    /// All known ends, the earliest first.
    pub fn all(limits: Option<&Limits>, known: &ClusterState, now: Timestamp) -> Vec<Self> {
        let of_hosts = known.ends().and_then(|at| Some(Self::of_hosts(known.spec.as_ref()?, at)));
        let deadline = limits.and_then(|limits| limits.ends(known.begun)).map(|at| Self { at, why: Cause::Deadline });
        let cost = limits.and_then(|limits| limits.cost_ends(known, now)).map(|at| Self { at, why: Cause::Cost });
        let mut all: Vec<Self> = [of_hosts, deadline, cost].into_iter().flatten().collect();
        all.sort_by_key(|end| end.at);
        all
    }

    /// The end that hosts save before: the earliest, if the spec says what happens then. Idleness is none: this machine asks
    /// for a copy before it acts.
    pub fn for_hosts(folder: &Path, known: &ClusterState) -> Option<Self> {
        known.running_spec().and_then(|spec| spec.end.as_ref())?;
        Self::of(folder, known)
    }

    /// When a cluster ends as nobody uses it, if nobody does now.
    pub fn idle(idle: &IdleSpec, limits: &Limits, seen: &GuardsReport) -> Option<Self> {
        let after = SignedDuration::try_from(idle.after()).unwrap_or(SignedDuration::MAX);
        let at = later(seen.idle_since?, after);
        Some(Self { at: limits.kept_until.map_or(at, |kept| kept.max(at)), why: Cause::Idle })
    }
}
