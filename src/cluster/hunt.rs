//! Hunting: what `up` does while a provider has none of what is asked for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::engine::{Cancel, Urgency};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::event::{Bus, EventKind};
use crate::spec::{Capacity, Partial};
use crate::util::human;

/// How often it is told what is waited for while that does not change.
const TELL_EVERY: Duration = Duration::from_secs(300);

/// How long, how often and for what it is asked again.
pub(super) struct Hunt {
    /// The end, and the same for people; `None` when nobody asked to wait.
    until: Option<(Instant, Timestamp)>,
    partial: Partial,
    poll: Duration,
    events: Bus,
    cancel: Cancel,
    round: tokio::sync::Mutex<Round>,
    stop: watch::Sender<Option<Stop>>,
    /// What was chosen last is not what the plan was made for.
    outgrown: AtomicBool,
    /// The refusal for which all is given back.
    refusal: Mutex<Option<Error>>,
}

/// All who wait share one look at the provider.
#[derive(Debug, Default)]
struct Round {
    number: u64,
    was_refused: bool,
    told: Option<(String, Instant)>,
}

/// Why nobody is to wait within this plan any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Not all can be had, and what is there is given back.
    GiveBack,
    /// Something else failed: it must be seen to first.
    Failed,
}

/// What comes of a wait.
#[derive(Debug)]
pub(super) enum Next {
    /// Something was chosen: it may be asked for. With the last refusal.
    Ask(Error),
    /// There is none of it still.
    Refused(Error),
}

impl Hunt {
    /// One that follows the spec, and before that what the command was told.
    pub(super) fn new(
        asked: Option<Duration>,
        spec: Option<&Capacity>,
        poll: Duration,
        events: &Bus,
        cancel: &Cancel,
    ) -> Self {
        let wait = asked.or(spec.and_then(|spec| spec.wait).map(|wait| wait.0));
        let until = wait.map(|wait| {
            let end = Timestamp::now().checked_add(jiff::SignedDuration::try_from(wait).unwrap_or_default());
            (Instant::now() + wait, end.unwrap_or(Timestamp::MAX))
        });
        Self {
            until,
            partial: spec.map(|spec| spec.partial).unwrap_or_default(),
            poll,
            events: events.clone(),
            cancel: cancel.clone(),
            round: tokio::sync::Mutex::default(),
            stop: watch::Sender::new(None),
            outgrown: AtomicBool::new(false),
            refusal: Mutex::default(),
        }
    }

    /// One that waits for nothing and keeps what there is.
    pub(super) fn none(events: &Bus, cancel: &Cancel) -> Self {
        Self::new(None, None, Duration::from_secs(1), events, cancel)
    }

    /// What is there is given back when not all of it can be had.
    pub(super) fn gives_back(&self) -> bool {
        self.partial == Partial::GiveBack
    }

    /// It was asked to wait, and the time is not over.
    pub(super) fn goes_on(&self) -> bool {
        self.until.is_some_and(|(until, _)| Instant::now() < until) && self.cancel.urgency() == Urgency::None
    }

    /// Nobody waits: what the spec takes as well is asked for at once.
    pub(super) fn takes_what_is_next(&self) -> bool {
        self.until.is_none() && !self.gives_back() && self.cancel.urgency() == Urgency::None
    }

    /// A plan is begun: nothing failed in it yet.
    pub(super) fn begin(&self) {
        self.stop.send_replace(None);
        self.outgrown.store(false, Ordering::Relaxed);
    }

    /// Hears of what failed in a plan: nobody waits for hours while something must be seen to.
    pub(super) fn heed(&self, error: &Error) {
        let stop = match error.kind() {
            ErrorKind::Capacity if self.gives_back() => {
                *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
                Stop::GiveBack
            }
            ErrorKind::Capacity => return,
            _ => Stop::Failed,
        };
        self.stop.send_if_modified(|now| now.is_none().then(|| *now = Some(stop)).is_some());
    }

    /// Waits until what is there is to be given back.
    pub(super) async fn gave_up(&self) {
        let mut stop = self.stop.subscribe();
        if stop.wait_for(|stop| *stop == Some(Stop::GiveBack)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The refusal for which all is given back.
    pub(super) fn refusal(&self) -> Error {
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
        refusal.unwrap_or_else(|| {
            Error::new(ErrorKind::Capacity, "acquire all hosts").because("the provider has none of some of them now")
        })
    }

    /// What was chosen does not fit into the plan that is being done.
    pub(super) fn outgrow(&self) {
        self.outgrown.store(true, Ordering::Relaxed);
    }

    /// Something was chosen already that a new plan is to be made for.
    pub(super) fn is_outgrown(&self) -> bool {
        self.outgrown.load(Ordering::Relaxed)
    }

    /// The number of the last look; who has seen it waits for the next.
    pub(super) async fn round(&self) -> u64 {
        self.round.lock().await.number
    }

    /// Waits until the provider may be asked again, and lets choose anew: one for all who wait.
    ///
    /// # Errors
    /// The refusal itself, when it is not waited for, or was for long enough; what the choice failed with for good; Ctrl-C.
    pub(super) async fn next(
        &self,
        what: &str,
        refused: Error,
        round: &mut u64,
        choose: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<Next> {
        let Some((until, end)) = self.until else { return Err(refused) };
        let mut stop = self.stop.subscribe();
        let looked = async {
            let mut state = self.round.lock().await;
            if state.number == *round {
                self.tell(what, &refused, (until, end), &mut state);
                tokio::time::sleep(self.poll).await;
                let chosen = choose().await;
                state.number += 1;
                state.was_refused = chosen.is_err();
                *round = state.number;
                return chosen.map(|()| false);
            }
            *round = state.number;
            Ok(state.was_refused)
        };
        tokio::select! {
            biased;
            () = self.cancel.at_least(Urgency::Finish) => {
                Err(Error::new(ErrorKind::Cancelled, format!("wait for capacity for {what}"))
                    .because("it was stopped with Ctrl-C"))
            }
            Ok(_) = stop.wait_for(Option::is_some) => {
                Err(refused.because("it is not waited for any longer, since something else failed"))
            }
            looked = looked => match looked {
                Ok(false) => Ok(Next::Ask(refused)),
                Ok(true) => Ok(Next::Refused(refused)),
                Err(error) if error.kind() == ErrorKind::Capacity => Ok(Next::Refused(error)),
                Err(error) if error.retry_status() != Status::Permanent => {
                    self.events.note(format!("asking again failed, and is repeated: {error}"));
                    Ok(Next::Refused(refused))
                }
                Err(error) => Err(error),
            },
            () = tokio::time::sleep_until(until) => {
                Err(refused.because(format!("nothing came free until {}", human::local(end))))
            }
        }
    }

    /// Says what is waited for, what would do, how often it is asked, and until when.
    fn tell(&self, what: &str, refused: &Error, (until, end): (Instant, Timestamp), state: &mut Round) {
        let causes = refused.causes().join("; ");
        let is_told = state.told.as_ref().is_some_and(|(told, at)| *told == causes && at.elapsed() < TELL_EVERY);
        if is_told {
            return;
        }
        let left = until.saturating_duration_since(Instant::now());
        self.events.send(EventKind::Waiting {
            what: format!(
                "capacity for {what}: {causes}; asked again in {} and as often after that, until {}",
                human::duration(self.poll),
                human::local(end)
            ),
            limit_milliseconds: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        });
        state.told = Some((causes, Instant::now()));
    }
}
