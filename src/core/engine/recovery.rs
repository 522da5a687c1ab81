//! Calls that a crash left open: their effects are looked for until they can no longer appear.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::{Cancel, Urgency};
use crate::error::Result;
use crate::event::Bus;
use crate::name::Key;
use crate::state::{Item, ItemState};
use crate::util::human;

/// Whether a resource whose call has no recorded result may still appear: the provider's consistency delay is not over.
pub fn may_appear(item: &Item, consistency_delay: Duration) -> bool {
    item.state == ItemState::Requested
        && item.id.is_none()
        && item.since.duration_until(Timestamp::now()).unsigned_abs() < consistency_delay
}

/// Looks; while `missing` names what may still appear, looks again, for up to the provider's consistency delay.
pub async fn look_until_certain<T, F: Future<Output = Result<T>>>(
    consistency_delay: Duration,
    look: impl Fn() -> F,
    missing: impl Fn(&T) -> Option<Key>,
    cancel: &Cancel,
    events: &Bus,
) -> Result<T> {
    let begin = Instant::now();
    let mut reported = None;
    loop {
        let seen = cancel.unless_pressed("look at what exists", look()).await?;
        let Some(key) = missing(&seen) else { return Ok(seen) };
        if begin.elapsed() > consistency_delay || cancel.urgency() == Urgency::Now {
            return Ok(seen);
        }
        if reported.as_ref() != Some(&key) {
            let (name, limit) = (key.display_name(), human::short_duration(consistency_delay));
            events.note(format!("a call for {name} may still take effect; checking again for up to {limit}"));
            reported = Some(key);
        }
        tokio::time::sleep(Duration::from_millis(500).min(consistency_delay / 4)).await;
    }
}
