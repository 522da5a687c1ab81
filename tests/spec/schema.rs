//! `gpucl schema` and the reference.

use gpucl::{providers, spec};
use serde_json::{Value, json};

use super::{HALL, project};
use crate::support::TestEnv;

/// Every name of a property in a schema, with the names below `$defs` that hold one.
fn properties(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(keys) => {
            if let Some(Value::Object(properties)) = keys.get("properties") {
                names.extend(properties.keys().cloned());
            }
            keys.values().for_each(|value| properties(value, names));
        }
        Value::Array(items) => items.iter().for_each(|item| properties(item, names)),
        _ => {}
    }
}

#[test]
fn the_reference_names_every_key() {
    let reference = fs_err::read_to_string(project("docs/reference/spec.md")).unwrap();
    let mut names = Vec::new();
    properties(&spec::schema(providers::all()).unwrap(), &mut names);
    assert!(names.contains(&"object_store_memory".to_owned()), "{names:?}");
    for name in names {
        let named = [format!("`{name}`"), format!(".{name}`")].iter().any(|form| reference.contains(form));
        assert!(named, "docs/reference/spec.md does not name `{name}`");
    }
}

#[test]
fn the_reference_says_the_defaults() {
    let reference = fs_err::read_to_string(project("docs/reference/spec.md")).unwrap();
    assert!(reference.contains(&format!("`{}`", spec::DEFAULT_RAY_VERSION)));
    for wait in ["`20m`", "`2m`", "`3m`", "`10s`"] {
        assert!(reference.contains(wait), "{wait}");
    }
}

/// A new key is a decision about its reader, whoever writes it.
#[test]
fn every_key_says_what_it_asks_of_its_reader() {
    let core = spec::schema(&[]).unwrap();
    let mut asking = spec::classified(&core);
    assert_eq!(spec::unclassified(&core), Vec::<String>::new());
    for provider in providers::all() {
        let name = provider.manifest().unwrap().name;
        for schema in [provider.settings_schema().to_value(), provider.host_schema().to_value()] {
            assert_eq!(spec::unclassified(&schema), Vec::<String>::new(), "provider {name}");
            asking.extend(spec::classified(&schema).into_iter().map(|key| format!("{name}: {key}")));
        }
    }
    for key in ["compose", "data[].from.command", "files[].git", "kubernetes: kubeconfig", "lambda: endpoint"] {
        assert!(asking.iter().any(|asks| asks == key), "{key}: {asking:?}");
    }
    // A key without a class, and one whose class cannot be read, are both found.
    for key in [json!({ "type": "string" }), json!({ "type": "string", "asks": { "class": "nonsense", "says": "x" } })]
    {
        assert_eq!(spec::unclassified(&json!({ "properties": { "a": { "properties": { "b": key } } } })), ["a.b"]);
    }
}

#[test]
fn the_committed_schema_is_what_the_program_prints() {
    let env = TestEnv::new();
    let printed = env.run(&["schema"]).exits(0).stdout;
    let committed = fs_err::read_to_string(project("docs/reference/spec.schema.json")).unwrap();
    let differ = printed.lines().zip(committed.lines()).find(|(now, before)| now != before);
    assert!(printed == committed, "make it anew: gpucl schema > docs/reference/spec.schema.json; {differ:?}");
}

#[test]
fn the_schema_is_one_line_of_json_where_that_is_asked_for() {
    let env = TestEnv::new();
    let printed = env.run(&["schema", "--output", "json"]).exits(0).stdout;
    assert_eq!(printed.lines().count(), 1);
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), spec::schema(providers::all()).unwrap());
}

#[test]
fn the_schema_says_what_editors_need() {
    let schema = spec::schema(providers::all()).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["additionalProperties"], json!(false));
    assert_eq!(schema["required"], json!(["name"]));
    assert!(schema["title"].is_string() && schema["description"].is_string());
    for (name, property) in schema["properties"].as_object().unwrap() {
        assert!(property["description"].is_string(), "{name} has no description");
    }
}

#[test]
fn the_schema_holds_the_settings_of_every_provider() {
    let schema = spec::schema(&[&HALL]).unwrap();
    let definitions = &schema["$defs"];
    let settings = &definitions["provider_hall"];
    assert_eq!(settings["properties"]["name"]["const"], "hall");
    assert_eq!(settings["required"], json!(["name"]));
    assert_eq!(settings["additionalProperties"], json!(false));
    assert_eq!(definitions["host_hall"]["properties"]["node"]["description"], "The host's name.");
    assert_eq!(definitions["ProviderChoice"]["anyOf"][0]["enum"], json!(["hall"]));
    assert_eq!(definitions["ProviderChoice"]["anyOf"][1]["$ref"], "#/$defs/provider_hall");
    assert_eq!(schema["allOf"][0]["then"]["properties"]["hosts"]["items"]["$ref"], "#/$defs/host_hall");
    // What a provider's schema defines has moved along, and is found where it is now.
    assert!(definitions["hall_Site"].is_object());
    let mut references = Vec::new();
    collect_references(&schema, &mut references);
    for reference in references {
        let name = reference.strip_prefix("#/$defs/").unwrap();
        assert!(definitions.get(name).is_some(), "{reference} points nowhere");
    }
}

fn collect_references(schema: &Value, references: &mut Vec<String>) {
    match schema {
        Value::Object(keys) => {
            references.extend(keys.get("$ref").and_then(Value::as_str).map(str::to_owned));
            keys.values().for_each(|value| collect_references(value, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, references)),
        _ => {}
    }
}
