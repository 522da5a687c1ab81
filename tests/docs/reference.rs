//! `docs/reference/json.md` names every event, every field of it, and every other type that a command prints.

use super::{read, root};

/// The variants of `EventKind` with their fields, as they are serialized.
fn events() -> Vec<(String, Vec<String>)> {
    let text = read("src/core/event/kind.rs");
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

/// The variants of an enum of ours, as they are serialized.
fn variants(file: &str, name: &str) -> Vec<String> {
    let text = read(file);
    let body = text.split(&format!("pub enum {name} {{")).nth(1).unwrap().split("\n}").next().unwrap().to_owned();
    let is_variant =
        |line: &&str| line.starts_with("    ") && line[4..].starts_with(|letter: char| letter.is_ascii_uppercase());
    let word = |line: &str| line.trim().split([',', '(', ' ']).next().unwrap().to_owned();
    body.lines().filter(is_variant).map(word).collect()
}

/// The words in backticks in the only line with this beginning, after it; the text after a ` … ` distinguishes
/// variants, and belongs to it.
fn listed(begin: &str) -> Vec<String> {
    let document = read("docs/reference/json.md");
    let (name, first) = begin.split_once(" … ").unwrap_or((begin, ""));
    let lines: Vec<&str> = document.lines().filter(|line| line.starts_with(&format!("{name}{first}"))).collect();
    assert_eq!(lines.len(), 1, "{begin}");
    let rest = lines[0].strip_prefix(name).unwrap();
    // What stands in brackets explains.
    let mut plain = String::new();
    let mut depth = 0;
    for letter in rest.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    plain.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The program's own text, but for its tests and for what only shows.
fn sources() -> String {
    let mut text = String::new();
    let mut folders = vec![root().join("src"), root().join("providers")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            if name.contains("/tests")
                || name.starts_with("src/cli/output")
                || name == "src/core/event/kind.rs"
                || name == "src/core/error.rs"
            {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                text.push_str(std::fs::read_to_string(&path).unwrap_or_default().split("#[cfg(test)]").next().unwrap());
            }
        }
    }
    text
}

/// No listed word is never sent, and no sent word is unlisted.
#[test]
fn the_listed_words_are_exactly_those_sent() {
    let sources = sources();
    for (file, name, begin) in [
        ("src/core/event/kind.rs", "Finish", "`finish` is "),
        ("src/core/event/kind.rs", "CheckOutcome", "The `outcome` of a check is "),
        (
            "src/core/event/kind.rs",
            "StepOutcome",
            "| `step` | a step of a program on a host has ended | `host`, `stage`, `step`; `outcome`: ",
        ),
        ("src/core/error.rs", "ErrorKind", "| `kind` |  … `usage`"),
        ("src/core/error.rs", "Status", "| `status` |  … `permanent`"),
        ("src/core/provider/reservation.rs", "LeaseState", "| `lease` | "),
    ] {
        let variants = variants(file, name);
        let never: Vec<&String> =
            variants.iter().filter(|word| !sources.contains(&format!("{name}::{word}"))).collect();
        assert!(never.is_empty(), "{name}: never sent: {never:?}");
        let words: std::collections::BTreeSet<String> = variants.iter().map(|name| snake(name)).collect();
        let mut described: std::collections::BTreeSet<String> = listed(begin).into_iter().collect();
        if name == "StepOutcome" {
            described.remove("milliseconds");
        }
        if name == "LeaseState" {
            described.retain(|word| words.contains(word));
        }
        assert_eq!(described, words, "docs/reference/json.md, {name}");
    }
    let names = read("src/core/plan/operation.rs");
    let of_kinds = names.split("pub fn name(&self)").skip(1).map(|text| text.split("\n    }\n").next().unwrap());
    let actions: Vec<&str> = of_kinds.flat_map(|text| text.split('"').skip(1).step_by(2)).collect();
    assert!(actions.len() > 7, "{actions:?}");
    assert_eq!(listed("Actions are "), actions);
    let report = read("src/cluster/report.rs");
    let words = report.split("pub fn name(self)").nth(1).unwrap().split("\n    }\n").next().unwrap();
    let mut phases: Vec<&str> = words.split('"').skip(1).step_by(2).chain(["unreadable"]).collect();
    phases.sort_unstable();
    let mut described: Vec<String> = listed("| `phase` | ");
    described.retain(|word| !["list", "error"].contains(&word.as_str()));
    described.sort();
    assert_eq!(described, phases);
}

/// The tables of a provider's guide name every key that a spec can say, and no other.
#[test]
fn the_settings_of_clouds_are_all_in_their_tables() {
    all_settings_are_in_the_table("chameleon", "Hosts are all named");
    all_settings_are_in_the_table("lambda", "All hosts are in one region");
}

fn all_settings_are_in_the_table(name: &str, after: &str) {
    let factory = gpucl::providers::find(name).unwrap();
    let keys = |schema: schemars::Schema| -> std::collections::BTreeSet<String> {
        // Of an entry that may be a text too, the map.
        let map = schema.as_value().pointer("/anyOf/0").unwrap_or(schema.as_value());
        map["properties"].as_object().unwrap().keys().cloned().collect()
    };
    let text = read(format!("providers/{name}/README.md"));
    let table = |before: &str, after: &str| -> std::collections::BTreeSet<String> {
        let part = text.split(before).nth(1).unwrap().split(after).next().unwrap();
        part.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(str::to_owned)).collect()
    };
    assert_eq!(table("Under `provider:`", "Under `hosts:`"), keys(factory.settings_schema()));
    assert_eq!(table("Under `hosts:`", after), keys(factory.host_schema()));
}
