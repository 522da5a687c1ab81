//! The limits: how often one may ask, and how often one may launch.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

/// How fast an account was asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Pace {
    /// Requests, those that came too soon with them.
    pub requests: u64,
    /// Launches among them.
    pub launches: u64,
    /// Requests that came too soon.
    pub too_fast: u64,
    /// Launches that came too soon.
    pub launches_too_fast: u64,
    /// The shortest time between two requests, in milliseconds.
    pub shortest_gap_ms: Option<u64>,
    /// The shortest time between two launches, in milliseconds.
    pub shortest_launch_gap_ms: Option<u64>,
    /// When launches were asked for.
    pub launched_at: Vec<Timestamp>,
}

/// What was asked when.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    pub(super) told: Pace,
    last: Option<Timestamp>,
    last_launch: Option<Timestamp>,
    /// What came last and was not too soon; only that counts for the next.
    taken: Option<Timestamp>,
    taken_launch: Option<Timestamp>,
}

impl Limiter {
    /// Counts a request; how long it should have waited, when it came too soon.
    pub(super) fn take(
        &mut self,
        now: Timestamp,
        is_launch: bool,
        every: Duration,
        launch_every: Duration,
    ) -> Option<Duration> {
        self.told.requests += 1;
        shorten(&mut self.told.shortest_gap_ms, self.last.replace(now), now);
        let mut wait = left(self.taken, every, now);
        if wait.is_some() {
            self.told.too_fast += 1;
        }
        if is_launch {
            self.told.launches += 1;
            self.told.launched_at.push(now);
            shorten(&mut self.told.shortest_launch_gap_ms, self.last_launch.replace(now), now);
            let launch_wait = left(self.taken_launch, launch_every, now);
            if launch_wait.is_some() {
                self.told.launches_too_fast += 1;
            }
            wait = wait.max(launch_wait);
        }
        if wait.is_none() {
            self.taken = Some(now);
            if is_launch {
                self.taken_launch = Some(now);
            }
        }
        wait
    }
}

fn since(earlier: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(earlier)).unwrap_or_default()
}

fn left(taken: Option<Timestamp>, every: Duration, now: Timestamp) -> Option<Duration> {
    every.checked_sub(since(taken?, now)).filter(|left| !left.is_zero())
}

fn shorten(shortest: &mut Option<u64>, last: Option<Timestamp>, now: Timestamp) {
    let Some(last) = last else { return };
    let gap = u64::try_from(since(last, now).as_millis()).unwrap_or(u64::MAX);
    *shortest = Some(shortest.map_or(gap, |known| known.min(gap)));
}
