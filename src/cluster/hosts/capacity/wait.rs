//! The capacity wait: polls while a provider lacks capacity. All waiting branches share each query.

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

/// How often an unchanged wait is reported again.
const REPORT_EVERY: Duration = Duration::from_secs(300);

/// Timeout and poll interval of a capacity wait, and its progress.
pub(in crate::cluster::hosts) struct CapacityWait {
    policy: Policy,
    /// The end of the wait, for display.
    end: Timestamp,
    poll: Duration,
    events: Bus,
    cancel: Cancel,
    round: tokio::sync::Mutex<Round>,
    /// The number of queries to the provider so far.
    checks: AtomicU64,
    /// The last query that each branch knows of.
    checked: Mutex<Checked>,
    stop: watch::Sender<Option<Stop>>,
    /// The last choice does not fit the current plan.
    needs_replan: AtomicBool,
    /// The refusal for which everything is released.
    refusal: Mutex<Option<Error>>,
}

/// The last shared query.
#[derive(Debug, Default)]
struct Round {
    was_refused: bool,
    reported: Option<(String, Instant)>,
}

/// The last query known to each branch in `by`; `first` for all others.
#[derive(Debug, Default)]
struct Checked {
    first: u64,
    by: BTreeMap<Key, u64>,
}

/// Why waiting within this plan must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Not all resources are available, and those that exist are released.
    GiveBack,
    /// Something else failed, which comes first.
    Failed,
}

/// The result of one poll of a capacity wait.
#[derive(Debug)]
pub(in crate::cluster::hosts) enum Next {
    /// A choice is available and may be requested. Carries the last refusal.
    Ask(Error),
    /// There is still no capacity.
    Refused(Error),
}

impl CapacityWait {
    /// Creates a wait with the timeout of the command, or else of the spec.
    pub(in crate::cluster::hosts) fn new(
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

    pub(in crate::cluster::hosts) fn policy(&self) -> Policy {
        self.policy
    }

    /// The current time and cancellation.
    pub(in crate::cluster::hosts) fn moment(&self) -> Moment {
        Moment { now: Instant::now(), is_cancelled: self.cancel.urgency() != Urgency::None }
    }

    /// Decides what a refused branch does next.
    pub(in crate::cluster::hosts) fn after_refusal(&self) -> AfterRefusal {
        self.policy.after_refusal(self.moment())
    }

    /// Resets the wait for a new plan, which is based on all queries so far.
    pub(in crate::cluster::hosts) fn begin(&self) {
        self.stop.send_replace(None);
        self.needs_replan.store(false, Ordering::Relaxed);
        *lock(&self.checked) = Checked { first: self.checks(), by: BTreeMap::new() };
    }

    /// Ends waiting after a failure in the plan: an error must not be held up for hours.
    pub(in crate::cluster::hosts) fn note_failure(&self, error: &Error) {
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

    /// Waits until existing resources are to be released.
    pub(in crate::cluster::hosts) async fn gave_up(&self) {
        let mut stop = self.stop.subscribe();
        if stop.wait_for(|stop| *stop == Some(Stop::GiveBack)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The refusal for which everything is released.
    pub(in crate::cluster::hosts) fn refusal(&self) -> Error {
        let refusal = lock(&self.refusal).take();
        refusal.unwrap_or_else(|| {
            Error::new(ErrorKind::Capacity, "acquire all hosts").because("the provider lacks capacity for some of them")
        })
    }

    /// Marks that the last choice does not fit the current plan.
    pub(in crate::cluster::hosts) fn set_needs_replan(&self) {
        self.needs_replan.store(true, Ordering::Relaxed);
    }

    /// Whether the last choice needs a new plan.
    pub(in crate::cluster::hosts) fn needs_replan(&self) -> bool {
        self.needs_replan.load(Ordering::Relaxed)
    }

    /// The number of queries to the provider so far.
    pub(in crate::cluster::hosts) fn checks(&self) -> u64 {
        self.checks.load(Ordering::Relaxed)
    }

    /// The last query that a branch knows of: it waits for the next.
    pub(in crate::cluster::hosts) fn last_check_of(&self, key: &Key) -> u64 {
        let checked = lock(&self.checked);
        checked.by.get(key).copied().unwrap_or(checked.first)
    }

    /// Records the last query that a branch knows of.
    pub(in crate::cluster::hosts) fn set_last_check(&self, key: &Key, check: u64) {
        lock(&self.checked).by.insert(key.clone(), check);
    }

    /// Waits until the provider may be queried again, and calls `choose`, once for all waiting branches.
    /// `last_check` is the last query that the caller knows of.
    ///
    /// # Errors
    /// The refusal itself, without a wait or after its timeout; a permanent error of `choose`; Ctrl-C.
    pub(in crate::cluster::hosts) async fn next(
        &self,
        what: &str,
        refused: Error,
        last_check: &mut u64,
        choose: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<Next> {
        let Some(until) = self.policy.until else { return Err(refused) };
        let mut stop = self.stop.subscribe();
        let polled = async {
            let mut state = self.round.lock().await;
            if self.checks() == *last_check {
                self.report(what, &refused, until, &mut state);
                tokio::time::sleep(self.poll).await;
                let chosen = choose().await;
                *last_check = self.checks.fetch_add(1, Ordering::Relaxed) + 1;
                state.was_refused = chosen.is_err();
                return chosen.map(|()| false);
            }
            *last_check = self.checks();
            Ok(state.was_refused)
        };
        tokio::select! {
            biased;
            () = self.cancel.at_least(Urgency::Finish) => {
                Err(Error::new(ErrorKind::Cancelled, format!("wait for capacity for {what}"))
                    .because(self.cancel.by().to_string()))
            }
            Ok(_) = stop.wait_for(Option::is_some) => {
                Err(refused.because("the wait ended because something else failed"))
            }
            polled = polled => match polled {
                Ok(false) => Ok(Next::Ask(refused)),
                Ok(true) => Ok(Next::Refused(refused)),
                Err(error) if error.kind() == ErrorKind::Capacity => Ok(Next::Refused(error)),
                Err(error) if error.retry_status() != Status::Permanent => {
                    self.events.note(format!("a query for capacity failed and is retried: {error}"));
                    Ok(Next::Refused(refused))
                }
                Err(error) => Err(error),
            },
            () = tokio::time::sleep_until(until) => {
                Err(refused.because(format!("nothing became available until {}", human::local(self.end))))
            }
        }
    }

    /// Reports what is waited for, why, the poll interval and the end of the wait.
    fn report(&self, what: &str, refused: &Error, until: Instant, state: &mut Round) {
        let causes = refused.causes().join("; ");
        let is_known = state.reported.as_ref().is_some_and(|(last, at)| *last == causes && at.elapsed() < REPORT_EVERY);
        if is_known {
            return;
        }
        let left = until.saturating_duration_since(Instant::now());
        self.events.send(EventKind::Waiting {
            what: format!(
                "capacity for {what}: {causes}; retrying every {} until {}",
                human::duration(self.poll),
                human::local(self.end)
            ),
            limit_milliseconds: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        });
        state.reported = Some((causes, Instant::now()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
