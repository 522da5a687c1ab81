//! Lenient deserialization: unknown fields, numbers as text, text as numbers, times in five formats.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Parses a time as the services write it: with a zone, or without one, then UTC.
pub(crate) fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    text.parse::<Timestamp>()
        .ok()
        .or_else(|| text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp()))
}

/// A value as text on one line; empty for null.
pub(crate) fn as_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A number that may be given as text; 0 if it is none.
pub(crate) fn as_number(value: &Value) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or_default(),
        Value::String(text) => text.trim().parse().unwrap_or_default(),
        Value::Bool(flag) => i64::from(*flag),
        _ => 0,
    }
}

/// A boolean that may be given as text or number.
pub(crate) fn as_flag(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => *flag,
        Value::String(text) => matches!(text.trim().to_ascii_lowercase().as_str(), "true" | "1" | "yes"),
        other => as_number(other) != 0,
    }
}

pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(as_text(&Value::deserialize(from)?))
}

/// Text, or `None` if absent, null or empty.
pub(super) fn some_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Some(as_text(&Value::deserialize(from)?)).filter(|text| !text.is_empty()))
}

pub(super) fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(as_flag(&Value::deserialize(from)?))
}

pub(super) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    let text = as_text(&Value::deserialize(from)?);
    parse_time(&text).ok_or_else(|| serde::de::Error::custom(format!("`{text}` is no time")))
}

/// A time, or `None` if absent, null or in an unknown format.
pub(super) fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(parse_time(&as_text(&Value::deserialize(from)?)))
}

/// A list; null is an empty one, and old services send it as JSON in a string.
pub(super) fn list<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    let value = match Value::deserialize(from)? {
        Value::Null => return Ok(Vec::new()),
        Value::String(text) if text.trim().is_empty() => return Ok(Vec::new()),
        Value::String(text) => serde_json::from_str(&text).map_err(serde::de::Error::custom)?,
        // A single item without a list.
        one @ Value::Object(_) => Value::Array(vec![one]),
        other => other,
    };
    serde_json::from_value(value).map_err(serde::de::Error::custom)
}
