//! What follows from a refusal and from a run of the plan. Pure: what time it is, is told.

use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Status};
use crate::spec::Partial;

/// In how many places more it is tried when the first has none, and nobody waits for it.
const NEXT_PLACES: usize = 3;

/// What was asked for, by the command or the spec.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    /// Until when capacity is waited for; `None` when nobody asked to wait.
    pub(super) until: Option<Instant>,
    /// What becomes of what is there when not all of it can be had.
    pub(super) partial: Partial,
}

/// When it is decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) now: Instant,
    /// Ctrl-C was pressed.
    pub(super) is_cancelled: bool,
}

/// What follows for one branch, while the others go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterRefusal {
    /// What the spec takes as well is asked for at once.
    AskForNext,
    /// It is waited for, and asked again.
    Wait,
    /// It ends.
    End,
}

/// How a run of the plan ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    /// What failed, in the order of failure.
    pub(super) errors: &'a [Error],
    /// Something is there that this command has made.
    pub(super) has_made: bool,
    /// What was chosen last does not fit into the plan that was done.
    pub(super) needs_replan: bool,
    /// Hosts are made and unmade: one that is no good can be made once more.
    pub(super) makes_hosts: bool,
}

/// What this command has tried already.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tried {
    /// What could not be used was made once more.
    pub(super) renewed: bool,
    /// The next choice was taken so often.
    pub(super) places: usize,
}

/// What follows for the next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterRun {
    /// There is none: all is as planned.
    Done,
    /// What could not be used is made once more.
    MakeAnew,
    /// What this command has made is given back; then it is decided once more.
    GiveBack,
    /// It goes on at once with what was chosen.
    Resolve,
    /// It goes on once there is something to choose.
    WaitAndResolve,
    /// There is none: not all can be had.
    End,
    /// There is none: something failed.
    Fail,
}

impl Policy {
    /// It was asked to wait, and the time is not over.
    pub(super) fn waits(&self, at: Moment) -> bool {
        self.until.is_some_and(|until| at.now < until) && !at.is_cancelled
    }

    /// What is there is given back when not all of it can be had.
    pub(super) fn gives_back(&self) -> bool {
        self.partial == Partial::GiveBack
    }

    /// Nobody waits: what the spec takes as well is asked for at once.
    fn takes_next(&self, at: Moment) -> bool {
        self.until.is_none() && !self.gives_back() && !at.is_cancelled
    }

    /// What follows when one branch was refused for want of capacity.
    pub(super) fn after_refusal(&self, at: Moment) -> AfterRefusal {
        match (self.takes_next(at), self.waits(at)) {
            (true, _) => AfterRefusal::AskForNext,
            // Not all can be had, so that nothing is worth being waited for while the others go on.
            (_, true) if !self.gives_back() => AfterRefusal::Wait,
            _ => AfterRefusal::End,
        }
    }

    /// What follows when a run of the plan has ended. What failed for another reason than capacity must be seen to first.
    pub(super) fn after_run(&self, run: Run<'_>, tried: Tried, at: Moment) -> AfterRun {
        let mut others = run.errors.iter().filter(|error| error.kind() != ErrorKind::Capacity).peekable();
        if run.errors.is_empty() {
            AfterRun::Done
        } else if others.peek().is_some() {
            let may_pass = others.all(|error| error.retry_status() == Status::Temporary);
            if may_pass && !tried.renewed && run.makes_hosts { AfterRun::MakeAnew } else { AfterRun::Fail }
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

    /// All that was asked for, at all times: what follows for one branch, and what for the next run when there is none of it, none of it
    /// and more of it is here, or none of it and more of it is somewhere else.
    #[test]
    fn what_follows_is_a_table() {
        use AfterRefusal as R;
        use AfterRun::{End, GiveBack, Resolve, WaitAndResolve};
        let begin = Instant::now();
        let (later, keep, give_back) = (Some(begin + HOUR), Partial::Keep, Partial::GiveBack);
        let none = [failed(ErrorKind::Capacity, Status::Temporary)];
        let table = [
            // until, partial, hours gone, Ctrl-C -> refused; run: nothing made, something made; needs_replan: nothing made, something made
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
                let run = Run { errors: &none, has_made, needs_replan, makes_hosts: true };
                assert_eq!(policy.after_run(run, Tried::default(), at), expected, "{case} {has_made} {needs_replan}");
            }
        }
    }

    #[test]
    fn a_failure_comes_before_a_refusal_and_is_tried_once_more() {
        let at = Moment { now: Instant::now(), is_cancelled: false };
        let policy = policy(None, Partial::Keep);
        let capacity = || failed(ErrorKind::Capacity, Status::Temporary);
        let ill = || failed(ErrorKind::Provider, Status::Temporary);
        let wrong = || failed(ErrorKind::Host, Status::Permanent);
        let of = |errors: &[Error], renewed, makes_hosts| {
            let run = Run { errors, has_made: true, needs_replan: false, makes_hosts };
            policy.after_run(run, Tried { renewed, places: 0 }, at)
        };
        assert_eq!(of(&[], false, true), AfterRun::Done);
        assert_eq!(of(&[capacity(), ill()], false, true), AfterRun::MakeAnew);
        assert_eq!(of(&[ill()], true, true), AfterRun::Fail);
        assert_eq!(of(&[ill()], false, false), AfterRun::Fail);
        assert_eq!(of(&[ill(), wrong()], false, true), AfterRun::Fail);
    }

    #[test]
    fn the_next_choice_is_not_taken_for_ever() {
        let at = Moment { now: Instant::now(), is_cancelled: false };
        let none = [failed(ErrorKind::Capacity, Status::Temporary)];
        let run = Run { errors: &none, has_made: false, needs_replan: true, makes_hosts: true };
        let after = |places| policy(None, Partial::Keep).after_run(run, Tried { renewed: false, places }, at);
        assert_eq!((after(NEXT_PLACES - 1), after(NEXT_PLACES)), (AfterRun::Resolve, AfterRun::End));
    }
}
