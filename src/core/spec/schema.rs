//! The JSON Schema of a spec: the common keys, and every provider's settings and hosts.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use super::{ProviderChoice, Spec};
use crate::error::Result;
use crate::provider::Factory;

/// The JSON Schema of the common keys; it does not restrict the providers' keys.
pub(super) fn own() -> &'static Value {
    static OWN: OnceLock<Value> = OnceLock::new();
    OWN.get_or_init(|| schemars::schema_for!(Spec).to_value())
}

/// The JSON Schema of a spec, with the settings of these providers.
///
/// # Errors
/// If a provider's manifest cannot be read.
pub fn schema(providers: &[&dyn Factory]) -> Result<Value> {
    let mut schema = own().clone();
    let mut definitions = schema.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut names = Vec::new();
    let mut choices = Vec::new();
    let mut hosts = Vec::new();
    for factory in providers {
        let manifest = factory.manifest()?;
        let name = manifest.name.as_str();
        let mut settings = graft(factory.settings_schema().to_value(), name, &mut definitions);
        take_name(&mut settings, name, &manifest.summary);
        let mut host = graft(factory.host_schema().to_value(), name, &mut definitions);
        host["title"] = json!(format!("A host of `{name}`"));
        definitions.insert(format!("provider_{name}"), settings);
        definitions.insert(format!("host_{name}"), host);
        choices.push(json!({ "$ref": format!("#/$defs/provider_{name}") }));
        hosts.push(hosts_of(name));
        names.push(name.to_owned());
    }
    if let Some(choice) = definitions.get_mut("ProviderChoice").filter(|_| !names.is_empty()) {
        choices.insert(0, json!({ "type": "string", "enum": names, "description": "The name alone." }));
        choice["anyOf"] = Value::Array(choices);
        schema["allOf"] = Value::Array(hosts);
    }
    schema["$defs"] = Value::Object(definitions);
    schema["title"] = json!("gpucl spec");
    Ok(schema)
}

/// Merges in a provider's schema: its definitions move to the common list, prefixed with the provider's name.
fn graft(mut schema: Value, provider: &str, definitions: &mut Map<String, Value>) -> Value {
    let inner = schema.as_object_mut().and_then(|keys| {
        keys.shift_remove("$schema");
        keys.shift_remove("$defs")
    });
    point_to_own(&mut schema, provider);
    if let Some(Value::Object(inner)) = inner {
        for (name, mut definition) in inner {
            point_to_own(&mut definition, provider);
            definitions.insert(format!("{provider}_{name}"), definition);
        }
    }
    schema
}

fn point_to_own(schema: &mut Value, provider: &str) {
    match schema {
        Value::Object(keys) => {
            for (key, value) in keys {
                match (key.as_str(), value.as_str().and_then(|text| text.strip_prefix("#/$defs/"))) {
                    ("$ref", Some(name)) => *value = json!(format!("#/$defs/{provider}_{name}")),
                    _ => point_to_own(value, provider),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| point_to_own(item, provider)),
        _ => {}
    }
}

/// Adds the provider's name as a key beside its settings.
fn take_name(settings: &mut Value, name: &str, summary: &str) {
    let old = settings.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut properties = Map::new();
    properties.insert("name".to_owned(), json!({ "const": name, "description": "The provider's name." }));
    properties.extend(old);
    settings["properties"] = Value::Object(properties);
    let mut required = vec![json!("name")];
    required.extend(settings.get("required").and_then(Value::as_array).cloned().unwrap_or_default());
    settings["required"] = Value::Array(required);
    settings["title"] = json!(format!("The provider `{name}`"));
    settings["description"] = json!(summary);
}

/// The schema of host entries that applies if this provider is chosen.
fn hosts_of(name: &str) -> Value {
    let named = json!({ "type": "object", "properties": { "name": { "const": name } }, "required": ["name"] });
    let mut chosen = json!({ "properties": { "provider": { "anyOf": [{ "const": name }, named] } } });
    if ProviderChoice::default().name() != name {
        chosen["required"] = json!(["provider"]);
    }
    let reference = format!("#/$defs/host_{name}");
    json!({ "if": chosen, "then": { "properties": { "hosts": { "items": { "$ref": reference } } } } })
}
