//! Retries of a call: after which failures, after which waits, and what the user sees of them.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use reqwest::Method;

use super::http::{Failure, changes};
use crate::error::Error;
use crate::event::Bus;

/// A longer wait before a retry is reported.
const SILENT_WAIT: Duration = Duration::from_secs(2);

/// Whether a call that is sent twice may take effect twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// It changes nothing.
    Read,
    /// It may change something.
    Change,
}

impl Call {
    /// The kind of a call with this method.
    pub fn of(method: &Method) -> Self {
        if changes(method) { Self::Change } else { Self::Read }
    }
}

/// Which calls may be sent again after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// None: a retry within seconds does not help.
    None,
    /// Those that change nothing: it is unknown whether the call was carried out.
    Reads,
    /// All: the call was surely not carried out.
    All,
}

/// A provider's classification of failures: what retries depend on, and the error that a user sees.
pub trait FailureClass: Sized {
    /// Which calls may be sent again after this failure.
    fn again(failure: &Failure<Self>) -> Again;

    /// Whether the same call may succeed a little later.
    fn passes(failure: &Failure<Self>) -> bool;

    /// The error to show.
    fn explain(failure: Failure<Self>) -> Error;
}

impl<K: FailureClass> Failure<K> {
    /// Whether the same call may succeed a little later.
    pub fn passes(&self) -> bool {
        K::passes(self)
    }
}

impl<K: FailureClass> From<Failure<K>> for Error {
    fn from(failure: Failure<K>) -> Self {
        K::explain(failure)
    }
}

/// The retries of calls to a service.
#[derive(Debug, Clone, Copy)]
pub struct Patience<'a> {
    /// The pauses before the retries, and the number of retries. `Retry-After` takes precedence over a pause.
    pub pauses: ExponentialBuilder,
    /// The longest wait: if the service asks for a longer one, the call fails.
    pub longest: Duration,
    /// Where waits are reported.
    pub events: &'a Bus,
}

impl Patience<'_> {
    /// Sends a call, and again while that may help and repeats no effect; `before_wait` is called with each failure
    /// that is followed by a retry, and with the wait until then.
    ///
    /// # Errors
    /// The failure of the last attempt.
    pub async fn retry<T, K, F>(
        &self,
        call: Call,
        once: impl FnMut() -> F,
        mut before_wait: impl FnMut(&Failure<K>, Duration),
    ) -> Result<T, Failure<K>>
    where
        K: FailureClass,
        F: Future<Output = Result<T, Failure<K>>>,
    {
        once.retry(self.pauses)
            .when(|failure: &Failure<K>| match K::again(failure) {
                Again::None => false,
                Again::Reads => call == Call::Read,
                Again::All => true,
            })
            .adjust(|failure: &Failure<K>, pause: Option<Duration>| {
                pause.map(|pause| failure.after.unwrap_or(pause)).filter(|wait| *wait <= self.longest)
            })
            .notify(|failure: &Failure<K>, wait: Duration| {
                before_wait(failure, wait);
                report(failure, wait, self.events);
            })
            .await
    }
}

/// Reports a wait before a retry, unless it is short.
fn report<K>(failure: &Failure<K>, wait: Duration, events: &Bus) {
    if wait > SILENT_WAIT {
        let seconds = wait.as_secs_f64().ceil();
        events.note(format!("failed to {}: {}; retrying in {seconds} s", failure.doing, failure.text));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::error::{ErrorKind, Status};
    use crate::event::EventKind;

    impl FailureClass for Again {
        fn again(failure: &Failure<Self>) -> Self {
            failure.kind
        }

        fn passes(_: &Failure<Self>) -> bool {
            true
        }

        fn explain(failure: Failure<Self>) -> Error {
            failure.into_error(ErrorKind::Provider, Status::Temporary, None)
        }
    }

    fn failure(kind: Again, after: Option<u64>) -> Failure<Again> {
        Failure { after: after.map(Duration::from_secs), ..Failure::new(kind, "list the leases", "it is busy") }
    }

    /// The number of attempts, the waits between them, and the notes.
    async fn attempts(call: Call, failure: Failure<Again>) -> (u32, Vec<u64>, Vec<String>) {
        let (events, mut inbox) = Bus::new();
        let pauses = ExponentialBuilder::new().with_min_delay(Duration::from_secs(1)).with_max_times(3);
        let patience = Patience { pauses, longest: Duration::from_secs(60), events: &events };
        let (sent, mut waits) = (Cell::new(0), Vec::new());
        let once = || async {
            sent.set(sent.get() + 1);
            Err::<(), _>(failure.clone())
        };
        let failed = patience.retry(call, once, |_: &Failure<Again>, wait| waits.push(wait.as_secs())).await;
        assert!(failed.is_err());
        let mut notes = Vec::new();
        while let Ok(EventKind::Note { message }) = inbox.try_recv() {
            notes.push(message);
        }
        (sent.get(), waits, notes)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_sent_again_only_where_that_repeats_no_effect() {
        for (again, read, change) in [(Again::None, 1, 1), (Again::Reads, 4, 1), (Again::All, 4, 4)] {
            assert_eq!(attempts(Call::Read, failure(again, None)).await.0, read, "{again:?}");
            assert_eq!(attempts(Call::Change, failure(again, None)).await.0, change, "{again:?}");
        }
        assert_eq!((Call::of(&Method::GET), Call::of(&Method::DELETE)), (Call::Read, Call::Change));
    }

    #[tokio::test(start_paused = true)]
    async fn the_services_wait_takes_precedence_up_to_a_limit_and_long_waits_are_reported() {
        let (_, waits, notes) = attempts(Call::Read, failure(Again::Reads, None)).await;
        assert_eq!(waits, [1, 2, 4]);
        assert_eq!(notes, ["failed to list the leases: it is busy; retrying in 4 s"]);
        assert_eq!(attempts(Call::Read, failure(Again::Reads, Some(60))).await.1, [60, 60, 60]);
        let (sent, waits, notes) = attempts(Call::Read, failure(Again::Reads, Some(61))).await;
        assert!(sent == 1 && waits.is_empty() && notes.is_empty(), "{waits:?} {notes:?}");
    }
}
