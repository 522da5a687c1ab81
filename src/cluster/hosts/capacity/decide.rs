//! Decides what follows a refusal, and a run of the plan. Pure: the time is an argument.

use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Status};
use crate::spec::Partial;

/// How many more places are tried without a capacity wait when the first has no capacity.
const NEXT_PLACES: usize = 3;

/// The capacity settings of the command or the spec.
#[derive(Debug, Clone, Copy)]
pub(in crate::cluster::hosts) struct Policy {
    /// The end of the capacity wait; `None` without one.
    pub(in crate::cluster::hosts) until: Option<Instant>,
    /// Whether existing resources are kept when not all are available.
    pub(in crate::cluster::hosts) partial: Partial,
}

/// The circumstances of a decision.
#[derive(Debug, Clone, Copy)]
pub(in crate::cluster::hosts) struct Moment {
    pub(in crate::cluster::hosts) now: Instant,
    /// Ctrl-C was pressed.
    pub(in crate::cluster::hosts) is_cancelled: bool,
}

/// What a refused branch does next, while the others go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cluster::hosts) enum AfterRefusal {
    /// Requests the spec's next choice at once.
    AskForNext,
    /// Waits for capacity, then requests again.
    Wait,
    /// Ends with the refusal.
    End,
}

/// How a run of the plan ended.
#[derive(Debug, Clone, Copy)]
pub(in crate::cluster::hosts) struct PlanRun<'a> {
    /// The errors, in the order of failure.
    pub(in crate::cluster::hosts) errors: &'a [Error],
    /// Whether resources exist that this command has created.
    pub(in crate::cluster::hosts) has_made: bool,
    /// Whether the last choice does not fit the plan that was run.
    pub(in crate::cluster::hosts) needs_replan: bool,
    /// Whether the provider creates hosts, so that a bad one can be replaced.
    pub(in crate::cluster::hosts) makes_hosts: bool,
}

/// What this command has tried already.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::cluster::hosts) struct Tried {
    /// An unusable resource was recreated.
    pub(in crate::cluster::hosts) renewed: bool,
    /// How many times the next choice was taken.
    pub(in crate::cluster::hosts) places: usize,
}

/// What follows a run of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cluster::hosts) enum AfterRun {
    /// No further run: the plan is done.
    Done,
    /// Recreates what is unusable.
    Recreate,
    /// Releases what this command has created, and decides again.
    GiveBack,
    /// Resolves and plans again at once.
    Resolve,
    /// Waits for capacity, then resolves and plans again.
    WaitAndResolve,
    /// No further run: not all resources are available.
    End,
    /// No further run: something failed.
    Fail,
}

impl Policy {
    /// Whether a capacity wait was requested and is not over.
    pub(in crate::cluster::hosts) fn waits(&self, at: Moment) -> bool {
        self.until.is_some_and(|until| at.now < until) && !at.is_cancelled
    }

    /// Whether existing resources are released when not all are available.
    pub(in crate::cluster::hosts) fn gives_back(&self) -> bool {
        self.partial == Partial::GiveBack
    }

    /// Whether the spec's next choice is requested at once, as there is no capacity wait.
    fn takes_next(&self, at: Moment) -> bool {
        self.until.is_none() && !self.gives_back() && !at.is_cancelled
    }

    /// Decides what a branch does after a refusal for lack of capacity.
    pub(in crate::cluster::hosts) fn after_refusal(&self, at: Moment) -> AfterRefusal {
        match (self.takes_next(at), self.waits(at)) {
            (true, _) => AfterRefusal::AskForNext,
            // With `give_back`, a refusal ends the whole run, so that no branch waits.
            (_, true) if !self.gives_back() => AfterRefusal::Wait,
            _ => AfterRefusal::End,
        }
    }

    /// Decides what follows a run of the plan. Errors other than lack of capacity come first.
    pub(in crate::cluster::hosts) fn after_run(&self, run: PlanRun<'_>, tried: Tried, at: Moment) -> AfterRun {
        let mut others = run.errors.iter().filter(|error| error.kind() != ErrorKind::Capacity).peekable();
        if run.errors.is_empty() {
            AfterRun::Done
        } else if others.peek().is_some() {
            let may_pass = others.all(|error| error.retry_status() == Status::Temporary);
            if may_pass && !tried.renewed && run.makes_hosts { AfterRun::Recreate } else { AfterRun::Fail }
        } else if self.gives_back() && run.has_made {
            AfterRun::GiveBack
        } else if run.needs_replan && (self.waits(at) || (self.takes_next(at) && tried.places < NEXT_PLACES)) {
            AfterRun::Resolve
        } else if self.waits(at) && !run.needs_replan {
            AfterRun::WaitAndResolve
        } else {
            AfterRun::End
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn policy(until: Option<Instant>, partial: Partial) -> Policy {
        Policy { until, partial }
    }

    fn failed(kind: ErrorKind, status: Status) -> Error {
        Error::new(kind, "acquire it").status(status)
    }

    /// Every policy at every time: what a refused branch does, and what follows a run that lacked capacity, without or
    /// with created resources, and without or with the need to replan.
    #[test]
    fn decisions_follow_the_table() {
        use AfterRefusal as R;
        use AfterRun::{End, GiveBack, Resolve, WaitAndResolve};
        let begin = Instant::now();
        let (later, keep, give_back) = (Some(begin + HOUR), Partial::Keep, Partial::GiveBack);
        let none = [failed(ErrorKind::Capacity, Status::Temporary)];
        let table = [
            // until, partial, hours gone, Ctrl-C -> refused; run: nothing created, something; both with needs_replan
            ((None, keep, 0, false), R::AskForNext, [End, End, Resolve, Resolve]),
            ((None, keep, 0, true), R::End, [End, End, End, End]),
            ((None, give_back, 0, false), R::End, [End, GiveBack, End, GiveBack]),
            ((later, keep, 0, false), R::Wait, [WaitAndResolve, WaitAndResolve, Resolve, Resolve]),
            ((later, keep, 1, false), R::End, [End, End, End, End]),
            ((later, keep, 0, true), R::End, [End, End, End, End]),
            ((later, give_back, 0, false), R::End, [WaitAndResolve, GiveBack, Resolve, GiveBack]),
            ((later, give_back, 1, false), R::End, [End, GiveBack, End, GiveBack]),
            ((later, give_back, 0, true), R::End, [End, GiveBack, End, GiveBack]),
        ];
        for ((until, partial, hours, is_cancelled), refused, runs) in table {
            let at = Moment { now: begin + HOUR * hours, is_cancelled };
            let policy = policy(until, partial);
            let case = format!("{until:?} {partial:?} {at:?}");
            assert_eq!(policy.after_refusal(at), refused, "{case}");
            let ways = [(false, false), (true, false), (false, true), (true, true)];
            for ((has_made, needs_replan), expected) in ways.into_iter().zip(runs) {
                let run = PlanRun { errors: &none, has_made, needs_replan, makes_hosts: true };
                assert_eq!(policy.after_run(run, Tried::default(), at), expected, "{case} {has_made} {needs_replan}");
            }
        }
    }

    #[test]
    fn a_failure_comes_before_a_refusal_and_is_retried_once() {
        let at = Moment { now: Instant::now(), is_cancelled: false };
        let policy = policy(None, Partial::Keep);
        let capacity = || failed(ErrorKind::Capacity, Status::Temporary);
        let ill = || failed(ErrorKind::Provider, Status::Temporary);
        let wrong = || failed(ErrorKind::Host, Status::Permanent);
        let of = |errors: &[Error], renewed, makes_hosts| {
            let run = PlanRun { errors, has_made: true, needs_replan: false, makes_hosts };
            policy.after_run(run, Tried { renewed, places: 0 }, at)
        };
        assert_eq!(of(&[], false, true), AfterRun::Done);
        assert_eq!(of(&[capacity(), ill()], false, true), AfterRun::Recreate);
        assert_eq!(of(&[ill()], true, true), AfterRun::Fail);
        assert_eq!(of(&[ill()], false, false), AfterRun::Fail);
        assert_eq!(of(&[ill(), wrong()], false, true), AfterRun::Fail);
    }

    #[test]
    fn the_next_choice_is_not_taken_forever() {
        let at = Moment { now: Instant::now(), is_cancelled: false };
        let none = [failed(ErrorKind::Capacity, Status::Temporary)];
        let run = PlanRun { errors: &none, has_made: false, needs_replan: true, makes_hosts: true };
        let after = |places| policy(None, Partial::Keep).after_run(run, Tried { renewed: false, places }, at);
        assert_eq!((after(NEXT_PLACES - 1), after(NEXT_PLACES)), (AfterRun::Resolve, AfterRun::End));
    }
}
