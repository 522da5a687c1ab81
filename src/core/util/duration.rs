//! Durations as written in specs and options.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{human, when};

/// The longest duration allowed in a spec.
const LONGEST_WAIT: Duration = Duration::from_secs(168 * 3600);

/// A duration in text form: `90s`, `5m`, `1h 30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SpecDuration(pub Duration);

impl TryFrom<String> for SpecDuration {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a duration: use a form such as `90s`, `5m` or `1h 30m`");
        match when::parse_duration(&text).ok_or_else(wrong)? {
            Duration::ZERO => Err(wrong()),
            long if long > LONGEST_WAIT => Err(format!("`{text}` is too long: the maximum is 168h")),
            duration => Ok(Self(duration)),
        }
    }
}

impl From<SpecDuration> for String {
    fn from(duration: SpecDuration) -> String {
        human::duration(duration.0)
    }
}

impl JsonSchema for SpecDuration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "examples": ["90s", "5m", "1h 30m"] })
    }
}
