//! `docs/reference/json.md` names every event, every field of it, and every other type that a command prints.

use super::{read, root};

/// The variants of `EventKind` with their fields, as they are serialized.
fn events() -> Vec<(String, Vec<String>)> {
    let text = read("src/event/kind.rs");
    let body = text.split("pub enum EventKind {").nth(1).unwrap();
    let mut events: Vec<(String, Vec<String>)> = Vec::new();
    for line in body.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        match (indent, line.strip_suffix(" {"), line.split_once(':')) {
            (4, Some(variant), _) => events.push((snake(variant), Vec::new())),
            (8, _, Some((field, _))) if !line.starts_with("//") => {
                events.last_mut().unwrap().1.push(field.to_owned());
            }
            _ => {}
        }
    }
    events
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

#[test]
fn every_event_and_each_of_its_fields_is_described() {
    let document = read("docs/reference/json.md");
    let events = events();
    assert!(events.len() >= 11 && events.iter().any(|(name, _)| name == "run_finished"), "{events:?}");
    let mut missing = Vec::new();
    for (name, fields) in events {
        let row = document.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        match row {
            None => missing.push(name),
            Some(row) => {
                missing
                    .extend(fields.iter().filter(|f| !row.contains(&format!("`{f}`"))).map(|f| format!("{name}.{f}")));
            }
        }
    }
    assert!(missing.is_empty(), "docs/reference/json.md says nothing of {missing:?}");
}

#[test]
fn every_type_that_a_command_prints_is_described() {
    let document = read("docs/reference/json.md");
    let mut types = Vec::new();
    let mut folders = vec![root().join("src/cli")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).unwrap();
            types.extend(text.split("\"type\": \"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
    }
    assert!(types.len() > 10, "{types:?}");
    types.retain(|name| !document.contains(&format!("`{name}`")));
    assert!(types.is_empty(), "docs/reference/json.md says nothing of {types:?}");
}

/// The tables of a provider's guide name every key that a spec can say, and no other.
#[test]
fn the_settings_of_clouds_are_all_in_their_tables() {
    all_settings_are_in_the_table("chameleon", "Hosts are all named");
    all_settings_are_in_the_table("lambda", "All hosts are in one region");
}

fn all_settings_are_in_the_table(name: &str, after: &str) {
    let factory = gpucl::provider::find(name).unwrap();
    let keys = |schema: schemars::Schema| -> std::collections::BTreeSet<String> {
        schema.as_value()["properties"].as_object().unwrap().keys().cloned().collect()
    };
    let text = read(format!("providers/{name}/README.md"));
    let table = |before: &str, after: &str| -> std::collections::BTreeSet<String> {
        let part = text.split(before).nth(1).unwrap().split(after).next().unwrap();
        part.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(str::to_owned)).collect()
    };
    assert_eq!(table("Under `provider:`", "Under `hosts:`"), keys(factory.settings_schema()));
    assert_eq!(table("Under `hosts:`", after), keys(factory.host_schema()));
}
