//! Rate limits of requests and of launches.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

/// Counts and rates of the requests to an account.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Pace {
    /// Number of requests, including those that came too soon.
    pub requests: u64,
    /// Number of launches among them.
    pub launches: u64,
    /// Number of requests that came too soon.
    pub too_fast: u64,
    /// Number of launches that came too soon.
    pub launches_too_fast: u64,
    /// Shortest time between two requests, in milliseconds.
    pub shortest_gap_ms: Option<u64>,
    /// Shortest time between two launches, in milliseconds.
    pub shortest_launch_gap_ms: Option<u64>,
    /// Time of each launch request.
    pub launched_at: Vec<Timestamp>,
}

/// The rate limiter of an account.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    pub(super) pace: Pace,
    last: Option<Timestamp>,
    last_launch: Option<Timestamp>,
    /// Time of the last request that was not too soon; the next one is measured from it.
    taken: Option<Timestamp>,
    taken_launch: Option<Timestamp>,
}

impl Limiter {
    /// Counts a request; returns how long it should have waited if it came too soon.
    pub(super) fn take(
        &mut self,
        now: Timestamp,
        is_launch: bool,
        every: Duration,
        launch_every: Duration,
    ) -> Option<Duration> {
        self.pace.requests += 1;
        shorten(&mut self.pace.shortest_gap_ms, self.last.replace(now), now);
        let mut wait = left(self.taken, every, now);
        if wait.is_some() {
            self.pace.too_fast += 1;
        }
        if is_launch {
            self.pace.launches += 1;
            self.pace.launched_at.push(now);
            shorten(&mut self.pace.shortest_launch_gap_ms, self.last_launch.replace(now), now);
            let launch_wait = left(self.taken_launch, launch_every, now);
            if launch_wait.is_some() {
                self.pace.launches_too_fast += 1;
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
