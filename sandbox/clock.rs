//! The clock of a stand-in: it can be moved forward, and a test can supply its time source.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of elapsed time; a test can supply its own.
pub trait TimeSource: Debug + Send + Sync {
    /// Time since a fixed moment.
    fn elapsed(&self) -> Duration;
}

/// Tokio's time, which stands still in a test that has paused it.
#[derive(Debug)]
struct Runtime(Instant);

impl TimeSource for Runtime {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A clock that can be moved forward.
#[derive(Debug)]
pub(super) struct Clock {
    source: Arc<dyn TimeSource>,
    began: Duration,
    base: Timestamp,
    advanced: Duration,
}

impl Clock {
    pub(super) fn new(offset: SignedDuration) -> Self {
        Self::counted(offset, Arc::new(Runtime(Instant::now())))
    }

    /// A clock that runs at the pace of `source`.
    pub(super) fn counted(offset: SignedDuration, source: Arc<dyn TimeSource>) -> Self {
        Self { began: source.elapsed(), source, base: Timestamp::now() + offset, advanced: Duration::ZERO }
    }

    pub(super) fn now(&self) -> Timestamp {
        after(self.base, self.source.elapsed().saturating_sub(self.began) + self.advanced)
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.advanced += by;
    }
}

/// `time` plus `by`; `Timestamp::MAX` on overflow.
pub(super) fn after(time: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| time.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

/// `Sat, 21 Nov 2026 01:55:07 GMT`
pub(super) fn http(time: Timestamp) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}
