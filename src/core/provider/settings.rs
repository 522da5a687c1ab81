//! Reads a provider's own settings strictly, with errors that name the key.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::FieldError;
use crate::error::{Error, ErrorKind};

/// Reads settings or a host's entry; each error names its key, prefixed by `path` (empty for the settings' root).
///
/// With `#[serde(deny_unknown_fields)]` on a type, reading is strict at every depth. All unknown keys of the first
/// level are reported together, with the known names.
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
    serde_json::from_value(Value::Object(map.clone())).map_err(|error| {
        let message = error.to_string();
        let path = culprit::<T>(map, &message).map_or_else(|| path.to_owned(), |key| join(path, key));
        vec![field(&path, message)]
    })
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

/// The keys in a type's schema.
fn known_keys<T: JsonSchema>() -> Vec<String> {
    let schema = schemars::schema_for!(T);
    let keys = schema.get("properties").and_then(Value::as_object);
    keys.map(|keys| keys.keys().cloned().collect()).unwrap_or_default()
}

/// The key whose removal changes or removes the error.
fn culprit<'a, T: DeserializeOwned>(map: &'a Map<String, Value>, message: &str) -> Option<&'a str> {
    map.keys().map(String::as_str).find(|key| {
        let mut without = map.clone();
        without.remove(*key);
        serde_json::from_value::<T>(Value::Object(without)).err().is_none_or(|error| error.to_string() != message)
    })
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
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
    fn a_wrong_value_names_its_key() {
        let errors = read::<Settings>(&serde_json::json!({"site": "uc", "hours": "three"}), "").unwrap_err();
        assert_eq!(errors[0].path, "hours");
        assert!(errors[0].message.contains("invalid type: string \"three\""), "{}", errors[0].message);
    }

    #[test]
    fn a_missing_key_or_map_is_reported_at_the_root() {
        let errors = read::<Settings>(&serde_json::json!({}), "hosts[1]").unwrap_err();
        assert_eq!(errors[0].path, "hosts[1]");
        assert_eq!(read::<Settings>(&serde_json::json!(["uc"]), "").unwrap_err()[0].message, "must be a map of keys");
    }
}
