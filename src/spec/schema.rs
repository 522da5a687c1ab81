//! The JSON Schema of a spec.

/// The JSON Schema of a spec.
pub fn schema() -> serde_json::Value {
    serde_json::Value::Null
}
