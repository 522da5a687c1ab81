//! What the agent of a cluster's end does next, from what it knows: pure.

#[cfg(test)]
pub(super) mod tests;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::end::{Cause, End, Why};
use super::given::GivenEnd;
use super::limits::Limits;
use super::seen::{GuardsReport, SavedHere};
use crate::provider::Runtime;
use crate::spec::{SaveTo, Spec, Then};
use crate::state::ClusterState;
use crate::util::when::{between, earlier, later};

/// How often hosts are looked at while the end is far away.
const LOOK_EVERY: Duration = Duration::from_secs(300);
/// How often they are looked at in the last minutes.
const LOOK_OFTEN: Duration = Duration::from_secs(15);
/// How often near the end itself, and from how long before it on: a host may be gone after it, and nothing more is seen.
const LOOK_AT_LAST: SignedDuration = SignedDuration::from_secs(4);
const LAST: SignedDuration = SignedDuration::from_secs(60);
/// How long before idleness acts it is warned of.
pub const IDLE_WARNING: SignedDuration = SignedDuration::from_mins(5);
/// How old a look may be when idleness acts by it.
const FRESH: SignedDuration = SignedDuration::from_secs(40);
/// How long before the warning an extension is asked for: a person can still do something then.
const EXTENDS_EARLY: SignedDuration = SignedDuration::from_hours(2);
/// How often a refused extension is asked for again.
const EXTENDS_EVERY: SignedDuration = SignedDuration::from_mins(10);
/// How often what is copied to this machine is copied again while the hosts save.
const COPIES_EVERY: SignedDuration = SignedDuration::from_secs(30);
/// How often what a stopped cluster has is saved again where that failed.
const SAVES_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// What the agent knows.
pub(super) struct Facts<'a> {
    pub(super) limits: &'a Limits,
    pub(super) known: &'a ClusterState,
    pub(super) given: Option<&'a GivenEnd>,
    pub(super) seen: Option<&'a GuardsReport>,
    pub(super) here: &'a SavedHere,
    /// The current time, by the clock that has advanced more.
    pub(super) now: Timestamp,
    /// When hosts were last looked at, even in vain.
    pub(super) looked: Option<Timestamp>,
    /// When a copy to this machine was last begun.
    pub(super) copied: Option<Timestamp>,
    /// When what a stopped cluster has was last begun to be saved.
    pub(super) saved: Option<Timestamp>,
    /// When an extension was last asked for.
    pub(super) extended: Option<Timestamp>,
}

/// What ends a cluster, or its nodes, now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// It is taken down.
    Down(Why),
    /// Its nodes are stopped.
    Stop(Why),
}

impl Facts<'_> {
    pub(super) fn spec(&self) -> Option<&Spec> {
        self.known.running_spec()
    }

    /// What is to be done with the cluster now, beside its deadline and cost, which [`Limits::verdict`] knows.
    pub(super) fn act(&self) -> Option<Act> {
        self.at_end().or_else(|| self.idle())
    }

    fn at_end(&self) -> Option<Act> {
        let spec = self.spec()?.end.as_ref()?;
        let end = self.end()?;
        let is_ours = end.why.is_ours();
        let is_over = end.at <= self.now;
        if !self.runs() || !(is_over || (end.before(spec.warning()) <= self.now && self.is_all_saved())) {
            // Nodes that were stopped once all was saved: their hosts stay for the rest of their time.
            return None;
        }
        match spec.then {
            Then::Stop if is_ours && is_over => Some(Act::Down(Why::End(end))),
            Then::Stop => Some(Act::Stop(Why::End(end))),
            Then::Down | Then::Extend => Some(Act::Down(Why::End(end))),
        }
    }

    fn idle(&self) -> Option<Act> {
        let (spec, seen, end) = (self.spec()?.idle.as_ref()?, self.seen?, self.idle_end()?);
        if end.at > self.now || between(seen.at, self.now) > FRESH || !self.runs() {
            return None;
        }
        let why = Why::Idle(seen.idle_since?);
        Some(if spec.then == Then::Stop { Act::Stop(why) } else { Act::Down(why) })
    }

    /// When it ends as nobody uses it, if nobody does.
    pub(super) fn idle_end(&self) -> Option<End> {
        End::idle(self.spec()?.idle.as_ref()?, self.limits, self.seen?)
    }

    /// When hosts are to be looked at again; `None` if nothing runs on them, or nothing of theirs matters.
    pub(super) fn next_look(&self) -> Option<Timestamp> {
        let matters = |spec: &&Spec| spec.end.is_some() || spec.idle.is_some() || spec.notify.is_some();
        let spec = self.spec().filter(matters)?;
        if !self.runs() || !self.was_ready() {
            return None;
        }
        let Some(looked) = self.looked else { return Some(self.now) };
        let mut every = SignedDuration::try_from(LOOK_EVERY).unwrap_or_default();
        let often = SignedDuration::try_from(LOOK_OFTEN).unwrap_or_default();
        let mut near = |at: Timestamp| every = every.min(between(self.now, at)).max(often);
        if let (Some(end), Some(at)) = (&spec.end, self.end()) {
            near(at.before(end.warning()));
        }
        if let Some(idle) = &spec.idle {
            let quarter = SignedDuration::try_from(idle.after() / 4).unwrap_or_default();
            near(later(self.now, quarter));
            if let Some(at) = self.seen.and_then(|seen| End::idle(idle, self.limits, seen)) {
                near(earlier(at.at, IDLE_WARNING));
            }
        }
        let is_last = spec.end.is_some() && self.end().is_some_and(|end| earlier(end.at, LAST) <= self.now);
        Some(later(looked, if is_last { LOOK_AT_LAST } else { every }))
    }

    /// Whether what is copied to this machine is to be copied now.
    pub(super) fn copies_here(&self) -> bool {
        let of_spec = self.spec().and_then(|spec| spec.end.as_ref()).filter(|_| self.has_here() && self.runs());
        let Some((of_spec, end)) = of_spec.zip(self.end()) else { return false };
        // Whether or not a guard answers: what is on its host is copied while it can be reached.
        let begins = end.before(of_spec.warning()) <= self.now;
        let is_due = self.copied.is_none_or(|at| between(at, self.now) >= COPIES_EVERY);
        begins && is_due && !self.is_all_here()
    }

    /// Whether a cluster whose nodes were stopped by hand is to be saved now: no guard of its runs, but what it saves with is on
    /// its hosts. Nothing is written there any more, so once is enough.
    pub(super) fn saves_stopped(&self) -> bool {
        let saves = self.spec().and_then(|spec| spec.end.as_ref()).filter(|end| !end.save.is_empty());
        let Some((of_spec, end)) = saves.zip(self.end()) else { return false };
        let begins = end.before(of_spec.warning());
        let is_time = begins <= self.now && self.now < end.at && self.is_stopped();
        let was_saved = self.seen.is_some_and(|seen| seen.at >= begins && seen.is_whole()) && self.is_whole_here();
        let is_due = self.saved.is_none_or(|at| between(at, self.now) >= SAVES_AGAIN);
        is_time && is_due && !was_saved
    }

    /// Whether the lease is to be extended now, which is asked for long before it ends.
    pub(super) fn extends(&self) -> bool {
        let Some(spec) = self.spec().and_then(|spec| spec.end.as_ref()).filter(|end| end.then == Then::Extend) else {
            return false;
        };
        let Some(end) = self.end().filter(|end| end.why == Cause::Lease && end.at > self.now) else { return false };
        if !self.runs() {
            return false;
        }
        let is_time = earlier(end.before(spec.warning()), EXTENDS_EARLY) <= self.now;
        is_time && self.extended.is_none_or(|at| between(at, self.now) >= EXTENDS_EVERY)
    }

    pub(super) fn end(&self) -> Option<End> {
        End::all(Some(self.limits), self.known, self.now).into_iter().next()
    }

    /// Whether the guards have saved all before the end as it is known, and all that goes to this machine is here.
    pub(super) fn is_all_saved(&self) -> bool {
        let Some(given) = self.given.filter(|given| given.is(self.end())) else { return false };
        self.seen.is_some_and(|seen| seen.all_saved(given.revision)) && (!self.has_here() || self.is_all_here())
    }

    /// Whether all that goes to this machine is here, by the last pass.
    fn is_whole_here(&self) -> bool {
        !self.has_here() || (self.here.at.is_some() && self.here.saved.iter().all(|saved| saved.complete))
    }

    fn has_here(&self) -> bool {
        let end = self.spec().and_then(|spec| spec.end.as_ref());
        end.is_some_and(|end| end.save.iter().any(|save| matches!(save.to, SaveTo::Here(_))))
    }

    fn is_all_here(&self) -> bool {
        let given = self.given.map(|given| given.revision);
        given.is_some() && self.here.last_pass_of == given && self.here.saved.iter().all(|saved| saved.complete)
    }

    /// Whether its nodes were ready once, and so have guards.
    fn was_ready(&self) -> bool {
        self.known.ready_since.is_some() || self.seen.is_some() || self.given.is_some()
    }

    pub(super) fn runs(&self) -> bool {
        let projects = self.known.projects().map(|(_, project)| project.stopped);
        let mut stopped = projects.chain(self.known.platform().map(|platform| platform.stopped));
        stopped.any(|stopped| !stopped)
    }

    /// Whether its nodes were processes of hosts, and were stopped: a container that saves is gone then.
    fn is_stopped(&self) -> bool {
        let are_processes = self.spec().is_some_and(|spec| spec.runtime == Runtime::Native);
        are_processes && !self.runs() && self.known.projects().next().is_some()
    }
}
