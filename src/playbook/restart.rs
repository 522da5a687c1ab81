//! Waiting for a machine that starts anew.

use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result, Status};
use crate::event::{Bus, EventKind};
use crate::host::Host;

/// How long a machine has until it lets go of its connections; asked before, it would answer as the one it was.
const GOING_DOWN: Duration = Duration::from_secs(5);
/// How long to wait when it answered, and as the one it was.
const STILL_GOING: Duration = Duration::from_secs(10);

/// The reboot that is waited for, if any.
#[derive(Debug, Default)]
pub(super) struct Restart {
    awaited: Option<(Instant, String)>,
}

impl Restart {
    /// Whether one is waited for.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Takes the boot that an exec saw; true when it is the one that was waited for.
    pub(super) fn is_back(&mut self, boot: &str) -> bool {
        let back = self.awaited.as_ref().is_some_and(|(_, before)| !boot.is_empty() && boot != before);
        if back {
            self.awaited = None;
        }
        back
    }

    /// Waits until the machine can be asked again; `boot` is what the last exec saw of it.
    pub(super) async fn wait(&mut self, host: &dyn Host, boot: &str, events: &Bus) -> Result<()> {
        let limit = host.reboot_limit().unwrap_or_default();
        let first = self.awaited.is_none();
        let began = self.awaited.get_or_insert_with(|| (Instant::now(), boot.to_owned())).0;
        let left = limit.saturating_sub(began.elapsed());
        let late = |cause: String| {
            Error::new(ErrorKind::Timeout, format!("start {} anew", host.name()))
                .status(Status::Persistent)
                .because(cause)
                .hint("look at the machine's console; when it runs again, run the same command again")
        };
        let words = crate::util::human::duration(limit);
        if left.is_zero() {
            return Err(late(format!("the host did not start anew within {words}")));
        }
        if first {
            events.send(EventKind::Waiting {
                what: format!("{} to start anew", host.name()),
                limit_milliseconds: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            });
        }
        tokio::time::sleep(if first { GOING_DOWN } else { STILL_GOING }.min(left)).await;
        let left = limit.saturating_sub(began.elapsed()).max(Duration::from_secs(1));
        match tokio::time::timeout(left, host.rebooted(left)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if began.elapsed() < limit && error.retry_status() == Status::Temporary => Ok(()),
            Ok(Err(error)) => Err(late(format!("the host did not come back within {words}")).because(error)),
            Err(_) => Err(late(format!("the host did not come back within {words}"))),
        }
    }
}
