//! Reads a provider's own settings strictly. Their form, against the schema, is checked before: `spec::check_settings`
//! names the place of each mistake.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::FieldError;
use crate::error::{Error, ErrorKind};

/// Reads settings or a host's entry; errors are prefixed by `path` (empty for the settings' root).
///
/// With `#[serde(deny_unknown_fields)]` on a type, reading is strict at every depth. All unknown keys of the first
/// level are reported together, with the known names; any other mistake at the root, for all callers have settings whose
/// form was checked.
pub fn read<T: DeserializeOwned + JsonSchema>(value: &Value, path: &str) -> Result<T, Vec<FieldError>> {
    let empty = Map::new();
    let map = match value {
        Value::Object(map) => map,
        Value::Null => &empty,
        _ => return Err(vec![field(path, "must be a map of keys")]),
    };
    let known = known_keys::<T>();
    let unknown: Vec<FieldError> = map
        .keys()
        .filter(|key| !known.contains(key))
        .map(|key| FieldError { known: known.clone(), ..field(&join(path, key), "unknown key") })
        .collect();
    if !unknown.is_empty() {
        return Err(unknown);
    }
    serde_json::from_value(Value::Object(map.clone())).map_err(|error| vec![field(path, error.to_string())])
}

/// One error for settings that are wrong although their spec was validated.
pub fn wrong(doing: impl Into<String>, errors: &[FieldError]) -> Error {
    let describe = |error: &FieldError| match error.path.is_empty() {
        true => error.message.clone(),
        false => format!("`{}` {}", error.path, error.message),
    };
    let texts: Vec<String> = errors.iter().map(describe).collect();
    Error::new(ErrorKind::Provider, doing).because(texts.join(", "))
}

/// The schema of an entry that may be a text in place of its map of keys; `description` says what the text is.
pub fn or_text(map: schemars::Schema, description: &str) -> schemars::Schema {
    const OF_ENTRY: [&str; 4] = ["$schema", "title", "description", "$defs"];
    let (entry, own): (Map<String, Value>, Map<String, Value>) =
        map.as_object().cloned().unwrap_or_default().into_iter().partition(|(key, _)| OF_ENTRY.contains(&key.as_str()));
    let mut entry = entry;
    entry.insert("anyOf".to_owned(), json!([own, { "type": "string", "description": description }]));
    schemars::Schema::from(entry)
}

/// The keys in a type's schema.
fn known_keys<T: JsonSchema>() -> Vec<String> {
    let schema = schemars::schema_for!(T);
    let keys = schema.get("properties").and_then(Value::as_object);
    keys.map(|keys| keys.keys().cloned().collect()).unwrap_or_default()
}

/// The path of a key below a path; a key with other characters than letters, digits, `_` and `-` is quoted.
pub fn join(path: &str, key: &str) -> String {
    let is_plain =
        !key.is_empty() && key.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'));
    match (path.is_empty(), is_plain) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{key:?}"),
        (false, true) => format!("{path}.{key}"),
        (false, false) => format!("{path}.{key:?}"),
    }
}

fn field(path: &str, message: impl Into<String>) -> FieldError {
    FieldError { path: path.to_owned(), message: message.into(), known: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        site: String,
        #[serde(default)]
        hours: u32,
    }

    #[test]
    fn valid_settings_are_read() {
        let read: Settings = read(&serde_json::json!({"site": "uc"}), "").unwrap();
        assert_eq!(read, Settings { site: "uc".to_owned(), hours: 0 });
    }

    #[test]
    fn every_unknown_key_is_reported_with_the_known_ones() {
        let errors = read::<Settings>(&serde_json::json!({"sight": 1, "hour": 2}), "hosts[0]").unwrap_err();
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, ["hosts[0].sight", "hosts[0].hour"]);
        assert_eq!(errors[0].known, ["site", "hours"]);
    }

    #[test]
    fn a_missing_key_or_map_is_reported_at_the_root() {
        let errors = read::<Settings>(&serde_json::json!({}), "hosts[1]").unwrap_err();
        assert_eq!(errors[0].path, "hosts[1]");
        assert_eq!(read::<Settings>(&serde_json::json!(["uc"]), "").unwrap_err()[0].message, "must be a map of keys");
    }
}
