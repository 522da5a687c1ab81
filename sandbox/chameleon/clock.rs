//! Time formats of the services.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

pub(super) use super::super::clock::{Clock, after, http};

/// The next time, at or after `time`, at which Blazar's manager checks for due events.
pub(super) fn next_tick(time: Timestamp, tick: Duration) -> Timestamp {
    let (at, tick) = (time.as_nanosecond(), i128::try_from(tick.as_nanos()).unwrap_or(1).max(1));
    Timestamp::from_nanosecond((at + tick - 1).div_euclid(tick) * tick).unwrap_or(time)
}

/// The start of the minute.
pub(super) fn minute(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second().div_euclid(60) * 60).unwrap_or(time)
}

/// Formats as `2026-11-21T01:55:00.000000`.
pub(super) fn long(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.000000").to_string()
}

/// Formats as `2026-11-21 01:55:07`.
pub(super) fn spaced(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Formats as `2026-11-21T01:55:07Z`.
pub(super) fn zulu(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Parses the format that Blazar accepts: `2026-11-21 01:55`.
pub(super) fn read(text: &str) -> Option<Timestamp> {
    let time = DateTime::strptime("%Y-%m-%d %H:%M", text).ok()?;
    Some(TimeZone::UTC.to_zoned(time).ok()?.timestamp())
}
