//! Parses times, and shows them in local time and UTC.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, Zoned};

/// The accepted forms of a time, for errors.
pub const FORMS: &str = "14:00, \"2026-11-22 14:00\" or 2026-11-22T14:00:00-06:00";

/// The local time zone: that of `TZ`, else the system's.
pub fn zone(tz: Option<&str>) -> TimeZone {
    let named = tz.map(|name| name.trim_start_matches(':')).filter(|name| !name.is_empty()).and_then(|name| {
        let zone = if name.starts_with('/') {
            fs_err::read(name).ok().and_then(|data| TimeZone::tzif(name, &data).ok())
        } else {
            TimeZone::get(name).ok().or_else(|| TimeZone::posix(name).ok())
        };
        zone.or((name == "UTC").then_some(TimeZone::UTC))
    });
    named.unwrap_or_else(TimeZone::system)
}

/// Parses a time of day (today, or tomorrow if it has passed), a date with a time, or a time with its zone.
///
/// # Errors
/// A lowercase fragment: it is not a time, or at a clock change it does not exist or is ambiguous.
pub fn parse(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, String> {
    let text = text.trim();
    if let Ok(zoned) = text.parse::<Zoned>() {
        return Ok(zoned.timestamp());
    }
    // `2026-11-22 14:00 UTC`, `2026-11-22 14:00Z`
    let bare = text.strip_suffix("UTC").or_else(|| text.strip_suffix('Z')).map(str::trim_end);
    if let Some(stamp) = bare.and_then(date_time) {
        return TimeZone::UTC.to_timestamp(stamp).map_err(|error| error.to_string());
    }
    if let Ok(stamp) = text.parse::<Timestamp>() {
        return Ok(stamp);
    }
    if let Some(stamp) = date_time(text) {
        return one_reading(stamp, zone);
    }
    let Some(time) = time_of_day(text) else {
        return Err(format!("`{text}` is not a time: use a form such as {FORMS}"));
    };
    let today = now.to_zoned(zone.clone()).date();
    let at = one_reading(today.to_datetime(time), zone)?;
    if at >= floor(now) {
        return Ok(at);
    }
    let tomorrow = today.tomorrow().map_err(|error| error.to_string())?;
    one_reading(tomorrow.to_datetime(time), zone)
}

fn date_time(text: &str) -> Option<DateTime> {
    let (date, time) = text.split_once(['T', ' '])?;
    let date: Date = date.parse().ok()?;
    Some(date.to_datetime(time_of_day(time.trim_start())?))
}

fn time_of_day(text: &str) -> Option<Time> {
    let parts: Vec<&str> = text.split(':').collect();
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(|part| (1..=2).contains(&part.len())) {
        return None;
    }
    let number = |at: usize| parts.get(at).map_or(Some(0), |part| part.parse::<i8>().ok());
    Time::new(number(0)?, number(1)?, number(2)?, 0).ok()
}

/// The instant of a local time, if there is exactly one.
fn one_reading(stamp: DateTime, zone: &TimeZone) -> Result<Timestamp, String> {
    let text = stamp.strftime("%Y-%m-%d %H:%M");
    let out_of_range = |error: jiff::Error| format!("{text} is out of range: {error}");
    let ambiguous = zone.to_ambiguous_zoned(stamp);
    let (before, after, what) = match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => return zone.to_timestamp(stamp).map_err(out_of_range),
        AmbiguousOffset::Gap { before, after } => (before, after, "does not exist: the clocks go forward then"),
        AmbiguousOffset::Fold { before, after } => (before, after, "occurs twice: the clocks go back then"),
    };
    let mut readings = Vec::new();
    for offset in [before, after] {
        let at = offset.to_timestamp(stamp).map_err(out_of_range)?;
        readings.push(format!("{} ({})", at.display_with_offset(offset), local(at, zone)));
    }
    readings.dedup();
    Err(format!("{text} {what}; write one of: {}", readings.join(" or ")))
}

/// Rounded down to the minute.
pub fn floor(at: Timestamp) -> Timestamp {
    let over = at.as_second().rem_euclid(60);
    Timestamp::from_second(at.as_second() - over).unwrap_or(at)
}

/// Rounded up to the minute.
pub fn ceil(at: Timestamp) -> Timestamp {
    let down = floor(at);
    if down == at { at } else { later(down, SignedDuration::from_mins(1)) }
}

/// A time plus a duration; unchanged if the sum is out of range.
pub fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(at)
}

/// A time minus a duration; unchanged if the difference is out of range.
pub fn earlier(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_sub(by).unwrap_or(at)
}

/// The duration from one time to another; negative if `to` is before `from`.
pub fn between(from: Timestamp, to: Timestamp) -> SignedDuration {
    from.duration_until(to)
}

/// Whether it is a full hour in this zone.
pub fn is_whole_hour(at: Timestamp, zone: &TimeZone) -> bool {
    let zoned = at.to_zoned(zone.clone());
    zoned.minute() == 0 && zoned.second() == 0 && zoned.subsec_nanosecond() == 0
}

/// The first full hour after this time in this zone.
pub fn next_whole_hour(at: Timestamp, zone: &TimeZone) -> Timestamp {
    let at = floor(at);
    let minute = i64::from(at.to_zoned(zone.clone()).minute());
    later(at, SignedDuration::from_mins(60 - minute))
}

/// Local time: `Sun 22 Nov 14:00 CST`.
pub fn local(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%a %-d %b %H:%M %Z").to_string()
}

/// Local time and UTC: `Sun 22 Nov 14:00 CST (20:00 UTC)`; only once if they are equal.
pub fn both(at: Timestamp, zone: &TimeZone) -> String {
    let (here, utc) = (at.to_zoned(zone.clone()), at.to_zoned(TimeZone::UTC));
    if here.datetime() == utc.datetime() {
        return utc.strftime("%a %-d %b %H:%M UTC").to_string();
    }
    let form = if here.date() == utc.date() { "%H:%M UTC" } else { "%a %-d %b %H:%M UTC" };
    format!("{} ({})", local(at, zone), utc.strftime(form))
}

/// A time span in local time and UTC: `Sun 22 Nov 14:00 to 16:50 CST (20:00 to 22:50 UTC)`.
pub fn span(from: Timestamp, to: Timestamp, zone: &TimeZone) -> String {
    let side = |zone: &TimeZone, day: bool| {
        let (from, to) = (from.to_zoned(zone.clone()), to.to_zoned(zone.clone()));
        let begin = from.strftime(if day { "%a %-d %b %H:%M" } else { "%H:%M" });
        let end = to.strftime(if from.date() == to.date() { "%H:%M" } else { "%a %-d %b %H:%M" });
        // If the clocks change in between, each time shows its own abbreviation.
        let (a, b) = (from.strftime("%Z").to_string(), to.strftime("%Z").to_string());
        if a == b { format!("{begin} to {end} {b}") } else { format!("{begin} {a} to {end} {b}") }
    };
    let (here, utc) = (from.to_zoned(zone.clone()), from.to_zoned(TimeZone::UTC));
    if here.datetime() == utc.datetime() && to.to_zoned(zone.clone()).offset() == utc.offset() {
        return side(&TimeZone::UTC, true);
    }
    format!("{} ({})", side(zone, true), side(&TimeZone::UTC, here.date() != utc.date()))
}

/// The name of a zone with its offset at that time: `America/Chicago, CST, UTC-6`.
pub fn zone_name(at: Timestamp, zone: &TimeZone) -> String {
    let here = at.to_zoned(zone.clone());
    let short = here.strftime("%Z").to_string();
    if here.offset().seconds() == 0 && (short == "UTC" || zone.iana_name().is_none()) {
        return "UTC".to_owned();
    }
    let minutes = here.offset().seconds() / 60;
    let (sign, hours, rest) = (if minutes < 0 { '-' } else { '+' }, minutes.abs() / 60, minutes.abs() % 60);
    let offset = if rest == 0 { format!("UTC{sign}{hours}") } else { format!("UTC{sign}{hours}:{rest:02}") };
    let is_word = short.chars().all(char::is_alphabetic);
    zone.iana_name()
        .into_iter()
        .chain(is_word.then_some(short.as_str()))
        .chain([offset.as_str()])
        .collect::<Vec<_>>()
        .join(", ")
}

/// Local date and time: `2026-11-22 14:00`.
pub fn dated(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M").to_string()
}

/// A time as an argument for `--start` or `--until`: `2026-11-22 14:00` in local time, in UTC if that is ambiguous.
pub fn argument(at: Timestamp, zone: &TimeZone) -> String {
    let plain = dated(at, zone);
    if parse(&plain, at, zone) == Ok(at) { plain } else { at.to_string() }
}

/// A duration in its two largest units: `3 h`, `2 h 50 min`, `6 d 4 h`, `45 min`.
pub fn length(duration: SignedDuration) -> String {
    let minutes = duration.as_mins().unsigned_abs();
    let (days, hours, rest) = (minutes / 1440, minutes % 1440 / 60, minutes % 60);
    let parts = match (days, hours) {
        (0, 0) => [(rest, "min"), (0, "")],
        (0, _) => [(hours, "h"), (rest, "min")],
        _ => [(days, "d"), (hours, "h")],
    };
    let text: Vec<String> =
        parts.iter().filter(|(amount, _)| *amount > 0).map(|(amount, unit)| format!("{amount} {unit}")).collect();
    if text.is_empty() { "0 min".to_owned() } else { text.join(" ") }
}

/// Parses a duration: hours as a number (`3`, `2.5`), or with units (`90m`, `1h30m`, `2d`).
///
/// # Errors
/// A lowercase fragment.
pub fn parse_length(text: &str) -> Result<SignedDuration, String> {
    let wrong = || format!("`{text}` is not a duration: use a form such as 3, 2.5, 90m, 1h30m or 2d");
    let asked = match text.trim().parse::<f64>() {
        Ok(hours) => Duration::try_from_secs_f64(hours * 3600.0).ok(),
        Err(_) => parse_duration(text),
    };
    let minutes = (asked.ok_or_else(wrong)?.as_secs_f64() / 60.0).round();
    // The limit is a year, more than any site allows.
    if (1.0..=527_040.0).contains(&minutes) { Ok(SignedDuration::from_mins(minutes as i64)) } else { Err(wrong()) }
}

/// Parses a duration with units (`90s`, `1h 30m`, `2d`); a day has 24 hours. `None` if it is not one or is negative.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let span: Span = text.trim().parse().ok()?;
    Duration::try_from(span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chicago() -> TimeZone {
        TimeZone::posix("CST6CDT,M3.2.0,M11.1.0").unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn times_are_local_unless_a_zone_is_given() {
        let now = at("2026-11-21T16:30:20Z");
        let read = |text: &str| parse(text, now, &chicago()).unwrap().to_string();
        assert_eq!(read("14:00"), "2026-11-21T20:00:00Z");
        assert_eq!(read("10:30"), "2026-11-21T16:30:00Z", "the current minute has not passed");
        assert_eq!(read("10:29"), "2026-11-22T16:29:00Z", "a time that has passed today is tomorrow");
        assert_eq!(read("9:05"), "2026-11-22T15:05:00Z");
        assert_eq!(read("2026-11-22 14:00"), "2026-11-22T20:00:00Z");
        assert_eq!(read("2026-11-22T14:00"), "2026-11-22T20:00:00Z");
        assert_eq!(read("2026-11-22 14:00 UTC"), "2026-11-22T14:00:00Z");
        assert_eq!(read("2026-11-22T14:00Z"), "2026-11-22T14:00:00Z");
        assert_eq!(read("2026-11-22T14:00:00+02:00"), "2026-11-22T12:00:00Z");
        assert_eq!(read("2026-07-01 14:00"), "2026-07-01T19:00:00Z", "summer");
        for wrong in ["", "14", "25:00", "tomorrow", "2026-13-01 10:00", "14:00 CET", "now", "123:4"] {
            assert!(parse(wrong, now, &chicago()).unwrap_err().contains("is not a time"), "{wrong}");
        }
    }

    #[test]
    fn a_nonexistent_or_ambiguous_time_is_refused_with_both_readings() {
        let now = at("2026-03-01T00:00:00Z");
        let gap = parse("2026-03-08 02:30", now, &chicago()).unwrap_err();
        assert!(gap.contains("does not exist"), "{gap}");
        assert!(gap.contains("2026-03-08T02:30:00-06:00 (Sun 8 Mar 03:30 CDT)"), "{gap}");
        assert!(gap.contains("2026-03-08T02:30:00-05:00 (Sun 8 Mar 01:30 CST)"), "{gap}");
        let fold = parse("2026-11-01 01:30", now, &chicago()).unwrap_err();
        assert!(fold.contains("occurs twice"), "{fold}");
        for reading in ["2026-11-01T01:30:00-05:00", "2026-11-01T01:30:00-06:00"] {
            assert!(fold.contains(reading), "{fold}");
            parse(reading, now, &chicago()).unwrap();
        }
        // A time of day is refused as well on that day.
        assert!(parse("01:30", at("2026-11-01T05:00:00Z"), &chicago()).unwrap_err().contains("occurs twice"));
    }

    #[test]
    fn local_time_and_utc_are_shown() {
        assert_eq!(both(at("2026-11-22T20:00:00Z"), &chicago()), "Sun 22 Nov 14:00 CST (20:00 UTC)");
        assert_eq!(both(at("2026-11-23T02:00:00Z"), &chicago()), "Sun 22 Nov 20:00 CST (Mon 23 Nov 02:00 UTC)");
        assert_eq!(both(at("2026-11-22T20:00:00Z"), &TimeZone::UTC), "Sun 22 Nov 20:00 UTC");
        let three = |zone: &TimeZone| span(at("2026-11-22T20:00:00Z"), at("2026-11-22T22:50:00Z"), zone);
        assert_eq!(three(&chicago()), "Sun 22 Nov 14:00 to 16:50 CST (20:00 to 22:50 UTC)");
        assert_eq!(three(&TimeZone::UTC), "Sun 22 Nov 20:00 to 22:50 UTC");
        assert_eq!(
            span(at("2026-11-01T04:00:00Z"), at("2026-11-01T09:00:00Z"), &chicago()),
            "Sat 31 Oct 23:00 CDT to Sun 1 Nov 03:00 CST (Sun 1 Nov 04:00 to 09:00 UTC)"
        );
    }

    #[test]
    fn a_shown_time_can_be_given_as_an_argument() {
        for text in ["2026-11-22T20:00:00Z", "2026-11-01T06:30:00Z", "2026-11-01T07:30:00Z", "2026-03-08T08:00:00Z"] {
            let shown = argument(at(text), &chicago());
            assert_eq!(parse(&shown, at("2026-01-01T00:00:00Z"), &chicago()).unwrap(), at(text), "{shown}");
        }
    }

    #[test]
    fn zones_are_named() {
        assert_eq!(zone_name(at("2026-11-22T20:00:00Z"), &chicago()), "CST, UTC-6");
        assert_eq!(zone_name(at("2026-11-22T20:00:00Z"), &TimeZone::UTC), "UTC");
        let india = TimeZone::posix("IST-5:30").unwrap();
        assert_eq!(zone_name(at("2026-11-22T20:00:00Z"), &india), "IST, UTC+5:30");
        assert!(is_whole_hour(at("2026-11-22T20:30:00Z"), &india));
        assert_eq!(next_whole_hour(at("2026-11-22T20:30:00Z"), &india), at("2026-11-22T21:30:00Z"));
        assert_eq!(zone(Some("CST6CDT,M3.2.0,M11.1.0")).to_offset(at("2026-11-22T20:00:00Z")).seconds(), -21600);
        assert_eq!(zone(Some("UTC")).to_offset(at("2026-11-22T20:00:00Z")).seconds(), 0);
    }

    #[test]
    fn durations_are_parsed_and_shown() {
        let read = |text: &str| length(parse_length(text).unwrap());
        assert_eq!(read("3"), "3 h");
        assert_eq!(read("2.5"), "2 h 30 min");
        assert_eq!(read("90m"), "1 h 30 min");
        assert_eq!(read("1h30m"), "1 h 30 min");
        assert_eq!(read("2d"), "2 d");
        assert_eq!(read("6d 4h"), "6 d 4 h");
        assert_eq!(read("2 h 50 min"), "2 h 50 min", "what is shown can be given");
        for wrong in ["", "0", "-1", "x", "3x", "1h30", "inf", "NaN", "99999"] {
            assert!(parse_length(wrong).is_err(), "{wrong}");
        }
    }
}
