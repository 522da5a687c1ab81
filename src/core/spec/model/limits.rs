//! The limits after which a cluster is taken down automatically: a deadline and a maximum cost.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::money::{Money, Unit};
use crate::util::{human, when};

/// The longest allowed deadline; anything longer is taken as a mistake.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);
/// The shortest allowed deadline.
const SHORTEST: Duration = Duration::from_secs(1);
/// The maximum of an amount, in millionths.
const MOST_MICROS: f64 = 1e15;

/// When a cluster is taken down automatically: `3h`, `2d`, `18:00`, `2026-11-22 18:00`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Deadline {
    /// This long after its first host was acquired.
    After(Duration),
    /// At the first occurrence of this time of day after its first host was acquired, or at this date and time.
    At(String),
}

impl Deadline {
    /// The resulting time, if the first host was acquired at `begun`.
    ///
    /// # Errors
    /// A lowercase fragment: at a clock change, the local time does not exist or is ambiguous.
    pub fn at(&self, begun: Timestamp, zone: &TimeZone) -> Result<Timestamp, String> {
        match self {
            Self::After(time) => Ok(when::later(begun, signed(*time))),
            Self::At(text) => when::parse(text, begun, zone),
        }
    }
}

/// The duration as a signed one, saturating.
fn signed(time: Duration) -> jiff::SignedDuration {
    jiff::SignedDuration::try_from(time).unwrap_or(jiff::SignedDuration::MAX)
}

impl TryFrom<String> for Deadline {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a deadline: use a duration such as 2d, or a time such as 18:00 or \"2026-11-22 18:00\""
            )
        };
        // A time has a colon, a duration has none.
        if text.contains(':') {
            // Only the format is checked here; the zone is known in `at`.
            return match when::parse(&text, Timestamp::UNIX_EPOCH, &TimeZone::UTC) {
                Ok(_) => Ok(Self::At(text.trim().to_owned())),
                Err(_) => Err(wrong()),
            };
        }
        match when::parse_duration(&text).ok_or_else(wrong)? {
            short if short < SHORTEST => Err(wrong()),
            long if long > LONGEST => Err(format!("`{text}` is too long: the maximum is 366d")),
            time => Ok(Self::After(time)),
        }
    }
}

impl From<Deadline> for String {
    fn from(deadline: Deadline) -> String {
        match deadline {
            Deadline::After(time) => human::duration(time),
            Deadline::At(text) => text,
        }
    }
}

impl JsonSchema for Deadline {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Deadline".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "examples": ["3h", "2d", "18:00", "2026-11-22 18:00"] })
    }
}

/// An amount of money: `40` and `40 USD` are dollars, `40 SU` are service units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Amount(pub Money);

impl std::str::FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not an amount: use a form such as 40, 12.50, `40 USD` or `40 SU`");
        let bare = text.trim();
        let (number, unit) = match bare.strip_prefix('$') {
            Some(number) => (number, "USD"),
            None => bare.split_at(bare.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(bare.len())),
        };
        let unit = match unit {
            "" | "USD" => Unit::Usd,
            "SU" => Unit::ServiceUnit,
            _ => return Err(wrong()),
        };
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let micros = (number * 1e6).round();
        if (1.0..=MOST_MICROS).contains(&micros) {
            Ok(Self(Money { micros: micros as u64, unit }))
        } else {
            Err(wrong())
        }
    }
}

impl From<Amount> for String {
    fn from(amount: Amount) -> String {
        format!("{} {}", amount.0.micros as f64 / 1e6, amount.0.unit)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl serde::de::Visitor<'_> for Form {
            type Value = Amount;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("an amount such as `40 USD`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Amount, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Amount, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Amount, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Amount, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "number"], "examples": [40, "12.50 USD", "40 SU"] })
    }
}

/// The default hourly price above which `up` asks first, in dollars. There is no default for service units.
pub const ASK_ABOVE: Money = Money { micros: 5_000_000, unit: Unit::Usd };

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(text: &str) -> Result<Deadline, String> {
        Deadline::try_from(text.to_owned())
    }

    #[test]
    fn deadlines_are_durations_or_times() {
        let begun: Timestamp = "2026-11-21T16:30:00Z".parse().unwrap();
        let at = |text: &str| deadline(text).unwrap().at(begun, &TimeZone::UTC).unwrap().to_string();
        assert_eq!(at("3h"), "2026-11-21T19:30:00Z");
        assert_eq!(at("90m"), "2026-11-21T18:00:00Z");
        assert_eq!(at("5s"), "2026-11-21T16:30:05Z");
        assert_eq!(at("2d"), "2026-11-23T16:30:00Z");
        assert_eq!(at("1d 2h"), "2026-11-22T18:30:00Z");
        assert_eq!(at("18:00"), "2026-11-21T18:00:00Z");
        assert_eq!(at("09:00"), "2026-11-22T09:00:00Z");
        assert_eq!(at("2026-12-01 09:00"), "2026-12-01T09:00:00Z");
        for text in ["3h", "18:00", "1d 2h"] {
            let read = deadline(text).unwrap();
            assert_eq!(deadline(&String::from(read.clone())).unwrap(), read);
        }
        for wrong in ["", "0s", "-3h", "3", "soon", "d", "25:00", "400d", "500ms"] {
            let error = deadline(wrong).unwrap_err();
            assert!(error.contains("is not a deadline") || error.contains("too long"), "{wrong}: {error}");
        }
    }

    #[test]
    fn amounts_have_a_unit() {
        let read = |text: &str| text.parse::<Amount>().map(|amount| amount.0.to_string());
        assert_eq!(read("40").unwrap(), "40.00 USD");
        assert_eq!(read("$12.5").unwrap(), "12.50 USD");
        assert_eq!(read("0.25 USD").unwrap(), "0.25 USD");
        assert_eq!(read("40SU").unwrap(), "40 SU");
        for wrong in ["", "0", "-1", "40 EUR", "USD", "inf", "nan", "1e12"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let amount: Amount = "12.5 SU".parse().unwrap();
        assert_eq!(String::from(amount).parse::<Amount>().unwrap(), amount);
    }
}
