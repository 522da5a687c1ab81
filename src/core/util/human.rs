//! Amounts, times and durations in human-readable form.

use std::time::Duration;

use jiff::fmt::friendly::SpanPrinter;
use jiff::tz::TimeZone;

use super::when;

/// A rounded duration: `1h 05m`, `4m 10s`, `12.3s` or `340ms`.
pub fn short_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds >= 86_400 {
        format!("{}d {:02}h", seconds / 86_400, seconds % 86_400 / 3600)
    } else if seconds >= 3600 {
        format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60)
    } else if seconds >= 60 {
        format!("{}m {:02}s", seconds / 60, seconds % 60)
    } else if seconds >= 1 {
        format!("{:.1}s", duration.as_secs_f64())
    } else {
        format!("{}ms", duration.as_millis())
    }
}

/// A duration in the format of a spec: `1h 30m`, `90s` as `1m 30s`.
pub fn duration(duration: Duration) -> String {
    SpanPrinter::new().unsigned_duration_to_string(&duration)
}

/// A number of bytes: `1.5 GiB`.
pub fn bytes(bytes: u64) -> String {
    let mut amount = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{amount:.1} {unit}") };
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} TiB")
}

/// A number with a noun: `1 worker`, `2 workers`, `2 processes`.
pub fn count(number: usize, what: &str) -> String {
    match (number, what.ends_with('s')) {
        (1, _) => format!("1 {what}"),
        (_, true) => format!("{number} {what}es"),
        (_, false) => format!("{number} {what}s"),
    }
}

/// A number of things of which there may be very many, with a noun: `100000 files`.
pub fn count_u64(number: u64, what: &str) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), what)
}

/// A time in the system's time zone: `Sat 21 Nov 16:50 CET`.
pub fn local(at: jiff::Timestamp) -> String {
    when::local(at, &TimeZone::system())
}

/// A time with its distance from now.
pub fn in_time(at: jiff::Timestamp) -> String {
    let left = at.duration_since(jiff::Timestamp::now());
    let time = local(at);
    match left.is_positive() {
        true => format!("{time} (in {})", short_duration(left.unsigned_abs())),
        false => format!("{time} ({} ago)", short_duration(left.unsigned_abs())),
    }
}

/// A sort key for natural order: `c2` before `c11`.
pub fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let at = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        let (word, digits) = rest.split_at(at);
        let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
        parts.push((word.to_owned(), digits[..end].parse().unwrap_or(0)));
        rest = &digits[end..];
    }
    parts
}
