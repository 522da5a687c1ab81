//! Hunting: waiting while a provider has none of what is asked for, and looking again, once for all who wait.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use super::decide::{AfterRefusal, Moment, Policy};
use crate::engine::{Cancel, Urgency};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::event::{Bus, EventKind};
use crate::name::Key;
use crate::spec::Capacity;
use crate::util::human;

/// How often it is told what is waited for while that does not change.
const TELL_EVERY: Duration = Duration::from_secs(300);

/// How long and how often it is asked again, and what was seen so far.
pub(in crate::cluster::backend::hosts) struct CapacityWait {
    policy: Policy,
    /// The end of the wait, for people.
    end: Timestamp,
    poll: Duration,
    events: Bus,
    cancel: Cancel,
    round: tokio::sync::Mutex<Round>,
    /// How often it was looked what there is.
    checks: AtomicU64,
    /// The look that each branch has seen; the others have seen the first of this plan.
    checked: Mutex<Checked>,
    stop: watch::Sender<Option<Stop>>,
    /// What was chosen last is not what the plan was made for.
    needs_replan: AtomicBool,
    /// The refusal for which all is given back.
    refusal: Mutex<Option<Error>>,
}

/// All who wait share one look at the provider.
#[derive(Debug, Default)]
struct Round {
    was_refused: bool,
    told: Option<(String, Instant)>,
}

#[derive(Debug, Default)]
struct Checked {
    first: u64,
    by: BTreeMap<Key, u64>,
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
pub(in crate::cluster::backend::hosts) enum Next {
    /// Something was chosen: it may be asked for. With the last refusal.
    Ask(Error),
    /// There is none of it still.
    Refused(Error),
}

impl CapacityWait {
    /// One that follows the spec, and before that what the command was told.
    pub(in crate::cluster::backend::hosts) fn new(
        asked: Option<Duration>,
        spec: Option<&Capacity>,
        poll: Duration,
        events: &Bus,
        cancel: &Cancel,
    ) -> Self {
        let wait = asked.or(spec.and_then(|spec| spec.wait).map(|wait| wait.0));
        let end = wait.and_then(|wait| Timestamp::now().checked_add(SignedDuration::try_from(wait).ok()?).ok());
        Self {
            policy: Policy {
                until: wait.map(|wait| Instant::now() + wait),
                partial: spec.map(|spec| spec.partial).unwrap_or_default(),
            },
            end: end.unwrap_or(Timestamp::MAX),
            poll,
            events: events.clone(),
            cancel: cancel.clone(),
            round: tokio::sync::Mutex::default(),
            checks: AtomicU64::new(0),
            checked: Mutex::default(),
            stop: watch::Sender::new(None),
            needs_replan: AtomicBool::new(false),
            refusal: Mutex::default(),
        }
    }

    /// What was asked for.
    pub(super) fn policy(&self) -> Policy {
        self.policy
    }

    /// Now.
    pub(super) fn moment(&self) -> Moment {
        Moment { now: Instant::now(), is_cancelled: self.cancel.urgency() != Urgency::None }
    }

    /// What follows for a branch that was refused.
    pub(super) fn after_refusal(&self) -> AfterRefusal {
        self.policy.after_refusal(self.moment())
    }

    /// A plan is begun: nothing failed in it yet, and what was looked at before is what it was made of.
    pub(super) fn begin(&self) {
        self.stop.send_replace(None);
        self.needs_replan.store(false, Ordering::Relaxed);
        *lock(&self.checked) = Checked { first: self.checks(), by: BTreeMap::new() };
    }

    /// Hears of what failed in a plan: nobody waits for hours while something must be seen to.
    pub(super) fn heed(&self, error: &Error) {
        let stop = match error.kind() {
            ErrorKind::Capacity if self.policy.gives_back() => {
                *lock(&self.refusal) = Some(error.clone());
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
        let refusal = lock(&self.refusal).take();
        refusal.unwrap_or_else(|| {
            Error::new(ErrorKind::Capacity, "acquire all hosts").because("the provider has none of some of them now")
        })
    }

    /// What was chosen does not fit into the plan that is being done.
    pub(super) fn set_needs_replan(&self) {
        self.needs_replan.store(true, Ordering::Relaxed);
    }

    /// Something was chosen already that a new plan is to be made for.
    pub(super) fn needs_replan(&self) -> bool {
        self.needs_replan.load(Ordering::Relaxed)
    }

    /// How often it was looked what there is.
    pub(in crate::cluster::backend::hosts) fn checks(&self) -> u64 {
        self.checks.load(Ordering::Relaxed)
    }

    /// The look that a branch has seen: it waits for the next.
    pub(super) fn last_check_of(&self, key: &Key) -> u64 {
        let seen = lock(&self.checked);
        seen.by.get(key).copied().unwrap_or(seen.first)
    }

    /// A branch has seen this look.
    pub(super) fn set_last_check(&self, key: &Key, check: u64) {
        lock(&self.checked).by.insert(key.clone(), check);
    }

    /// Waits until the provider may be asked again, and lets choose anew: one for all who wait.
    ///
    /// # Errors
    /// The refusal itself, when it is not waited for, or was for long enough; what the choice failed with for good; Ctrl-C.
    pub(in crate::cluster::backend::hosts) async fn next(
        &self,
        what: &str,
        refused: Error,
        seen: &mut u64,
        choose: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<Next> {
        let Some(until) = self.policy.until else { return Err(refused) };
        let mut stop = self.stop.subscribe();
        let looked = async {
            let mut state = self.round.lock().await;
            if self.checks() == *seen {
                self.tell(what, &refused, until, &mut state);
                tokio::time::sleep(self.poll).await;
                let chosen = choose().await;
                *seen = self.checks.fetch_add(1, Ordering::Relaxed) + 1;
                state.was_refused = chosen.is_err();
                return chosen.map(|()| false);
            }
            *seen = self.checks();
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
                Err(refused.because(format!("nothing came free until {}", human::local(self.end))))
            }
        }
    }

    /// Says what is waited for, what would do, how often it is asked, and until when.
    fn tell(&self, what: &str, refused: &Error, until: Instant, state: &mut Round) {
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
                human::local(self.end)
            ),
            limit_milliseconds: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        });
        state.told = Some((causes, Instant::now()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
