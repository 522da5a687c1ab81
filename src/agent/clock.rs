//! The clocks of the user's machine: the one on the wall, which may be set, and the one since boot, which may not.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::util::process::boot_id;
use crate::util::when::later;

/// A reading of this machine's clocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The wall clock, which people and time servers may set.
    pub wall: Timestamp,
    /// The time since boot in milliseconds, including sleep; it cannot be set.
    pub since_boot_ms: i64,
    /// The boot id.
    pub boot: String,
}

impl Clock {
    /// Reads the clocks.
    pub fn now() -> Self {
        let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Self { wall: Timestamp::now(), since_boot_ms: since.tv_sec * 1000 + since.tv_nsec / 1_000_000, boot: boot_id() }
    }

    /// The current time by the clock that has advanced more since this reading: setting a clock back gains no time.
    pub(super) fn later_now(&self, now: &Self) -> Timestamp {
        if self.boot != now.boot {
            return now.wall;
        }
        let elapsed = SignedDuration::from_millis(now.since_boot_ms - self.since_boot_ms);
        now.wall.max(later(self.wall, elapsed))
    }
}
