//! Waiting for a machine to reboot.

use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result, Status};
use crate::event::{Bus, EventKind};
use crate::host::Host;

/// Time for a machine to drop its connections; asked earlier, it would answer from the old boot.
const GOING_DOWN: Duration = Duration::from_secs(5);
/// Pause after an answer from the old boot.
const STILL_GOING: Duration = Duration::from_secs(10);

/// The awaited reboot, if any: since when, and the boot id before it.
#[derive(Debug, Default)]
pub(super) struct Restart {
    awaited: Option<(Instant, String)>,
}

impl Restart {
    /// Whether a reboot is awaited.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Takes the boot id from an exec; true when the awaited reboot has happened.
    pub(super) fn is_back(&mut self, boot: &str) -> bool {
        let back = self.awaited.as_ref().is_some_and(|(_, before)| !boot.is_empty() && boot != before);
        if back {
            self.awaited = None;
        }
        back
    }

    /// Waits until the machine answers again; `boot` is the boot id from the last exec.
    pub(super) async fn wait(&mut self, host: &dyn Host, boot: &str, events: &Bus) -> Result<()> {
        let limit = host.reboot_limit().unwrap_or_default();
        let first = self.awaited.is_none();
        let began = self.awaited.get_or_insert_with(|| (Instant::now(), boot.to_owned())).0;
        let left = limit.saturating_sub(began.elapsed());
        let late = |cause: String| {
            Error::new(ErrorKind::Timeout, format!("reboot {}", host.name()))
                .status(Status::Persistent)
                .because(cause)
                .hint("check the machine's console; once it is up, run the same command again")
        };
        let words = crate::util::human::duration(limit);
        if left.is_zero() {
            return Err(late(format!("the host did not reboot within {words}")));
        }
        if first {
            events.send(EventKind::Waiting {
                what: format!("{} to reboot", host.name()),
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
