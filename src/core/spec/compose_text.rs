//! Reads a compose file as compose does. Besides `yaml.rs`, the only file that uses the YAML crates.
//!
//! Whatever a reader of YAML could take in another way than compose's own is refused: tags that are not compose's, line
//! breaks of some readers only, keys that are not text.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser};
use serde_yaml::Value;

use super::node::shortened;
use super::yaml::half_line_break;

/// The maximum number of keys and values, with those of aliases counted wherever they are used.
const MOST_NODES: usize = 200_000;

/// The allowed top-level keys of a compose file, besides those that begin with `x-`.
const COMPOSE_KEYS: &[&str] =
    &["version", "name", "services", "networks", "volumes", "configs", "secrets", "include", "models"];

/// A value of a compose file, with aliases and merge keys resolved.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    Nothing,
    Flag(bool),
    Number(String),
    Text(String),
    List(Vec<Part>),
    /// Its own entries, then those of its merge keys: a key of both is there twice, so that none hides the other.
    Map(Vec<(String, Part)>),
    /// What has compose's `!override` or `!reset`.
    Tagged(Box<Part>),
}

impl Part {
    /// Whether there is an `!override` or a `!reset` in it.
    pub(super) fn has_tag(&self) -> bool {
        match self {
            Self::Tagged(_) => true,
            Self::List(items) => items.iter().any(Self::has_tag),
            Self::Map(entries) => entries.iter().any(|(_, value)| value.has_tag()),
            _ => false,
        }
    }

    /// The value without its tags.
    pub(super) fn untagged(&self) -> Self {
        match self {
            Self::Tagged(inner) => inner.untagged(),
            Self::List(items) => Self::List(items.iter().map(Self::untagged).collect()),
            Self::Map(entries) => {
                Self::Map(entries.iter().map(|(key, value)| (key.clone(), value.untagged())).collect())
            }
            other => other.clone(),
        }
    }
}

/// The top-level keys of a compose file, else why it is none; compose itself checks it in detail.
pub(super) fn read(text: &str) -> Result<Vec<(String, Part)>, String> {
    if let Some(problem) = half_line_break(text) {
        return Err(format!("cannot be used: {}", problem.message));
    }
    scan(text)?;
    let map = match serde_yaml::from_str::<Value>(text) {
        Ok(Value::Mapping(map)) => map,
        Ok(_) => return Err("is not a compose file: it is not a map of keys".to_owned()),
        Err(error) => return Err(format!("is not YAML: {error}")),
    };
    let is_known = |key: &str| COMPOSE_KEYS.contains(&key) || key.starts_with("x-") || key == "<<";
    if let Some(key) = map.keys().find(|key| !key.as_str().is_some_and(is_known)) {
        let shown = key.as_str().unwrap_or("(not text)");
        return Err(format!("is not a compose file: compose has no key `{}`", shortened(shown)));
    }
    let Part::Map(entries) = part(Value::Mapping(map))? else { return Ok(Vec::new()) };
    match entries.iter().find(|(key, _)| key == "services").map(|(_, services)| services.untagged()) {
        Some(Part::Map(_)) => Ok(entries),
        Some(_) => Err("is not a compose file: its `services` is not a map".to_owned()),
        None => Err("is not a compose file: it has no `services`".to_owned()),
    }
}

/// Refuses tags that are not compose's, and aliases that would make it too large.
fn scan(text: &str) -> Result<(), String> {
    let mut parser = Parser::new_from_str(text);
    let (mut nodes, mut open, mut sizes) = (0_usize, Vec::new(), HashMap::new());
    loop {
        let (event, span) = match parser.next_event() {
            None | Some(Ok((Event::StreamEnd, _))) => return Ok(()),
            Some(Ok(next)) => next,
            Some(Err(error)) => {
                let line = error.marker().line();
                return Err(format!("is not YAML: line {line}: {}", shortened(error.info())));
            }
        };
        let line = span.start.line();
        let tag = match &event {
            Event::Scalar(_, _, _, tag) | Event::SequenceStart(_, tag) | Event::MappingStart(_, tag) => tag.as_deref(),
            _ => None,
        };
        if tag.is_some_and(|tag| tag.handle != "!" || !["override", "reset"].contains(&tag.suffix.as_str())) {
            return Err(format!("cannot be used: line {line}: its only tags can be `!override` and `!reset`"));
        }
        nodes += match event {
            Event::Alias(anchor) => match sizes.get(&anchor) {
                Some(size) => *size,
                None => return Err(format!("cannot be used: line {line}: an alias is part of what it stands for")),
            },
            Event::Scalar(_, _, anchor, _) => {
                sizes.insert(anchor, 1);
                1
            }
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                open.push((anchor, nodes));
                1
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((anchor, before)) = open.pop() {
                    sizes.insert(anchor, nodes - before);
                }
                0
            }
            _ => 0,
        };
        if nodes > MOST_NODES {
            return Err(format!("cannot be used: it has more than {MOST_NODES} keys and values"));
        }
    }
}

fn part(value: Value) -> Result<Part, String> {
    Ok(match value {
        Value::Null => Part::Nothing,
        Value::Bool(flag) => Part::Flag(flag),
        Value::Number(number) => Part::Number(number.to_string()),
        Value::String(text) => Part::Text(text),
        Value::Sequence(items) => Part::List(items.into_iter().map(part).collect::<Result<_, _>>()?),
        Value::Tagged(tagged) => Part::Tagged(Box::new(part(tagged.value)?)),
        Value::Mapping(map) => {
            let (mut entries, mut merged) = (Vec::new(), Vec::new());
            for (key, value) in map {
                let Value::String(key) = key else {
                    return Err("cannot be used: one of its keys is not text".to_owned());
                };
                match (key.as_str(), part(value)?) {
                    ("<<", Part::Map(more)) => merged.extend(more),
                    ("<<", Part::List(maps)) if maps.iter().all(|map| matches!(map, Part::Map(_))) => {
                        merged.extend(maps.into_iter().flat_map(|map| match map {
                            Part::Map(more) => more,
                            _ => Vec::new(),
                        }));
                    }
                    ("<<", _) => return Err("cannot be used: a merge key (`<<`) has no map".to_owned()),
                    (_, value) => entries.push((key, value)),
                }
            }
            entries.append(&mut merged);
            Part::Map(entries)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compose_file_is_distinguished_from_other_yaml() {
        for text in [
            "services: {a: {image: x}}",
            "version: '3'\nname: x\nservices: {}\nvolumes: {v: {}}\nx-base: &base {a: 1}",
            "services: !override {a: {devices: !reset []}}",
            "services: {}\nnetworks: {}\nconfigs: {}\nsecrets: {}\ninclude: []\nmodels: {}",
        ] {
            assert!(read(text).is_ok(), "{text}");
        }
        let bomb: String = (1..30).map(|level| format!("  a{level}: &a{level} [*a{0}, *a{0}]\n", level - 1)).collect();
        for (text, why) in [
            ("version: 1\naccounts: {lambda: {secret: hush}}", "`accounts`"),
            ("clouds: {tacc: {auth: {}}}", "`clouds`"),
            ("apiVersion: v1\nkind: Config\nusers: []", "`apiVersion`"),
            ("version: 1", "no `services`"),
            ("services: [a]", "not a map"),
            ("services: {}\n1: x", "not text"),
            ("- a", "not a map of keys"),
            ("[default]\naws_access_key_id = A", "is not YAML"),
            ("", "not a map of keys"),
            // What readers of YAML could take in several ways.
            ("services: {a: {image: !!str x}}", "only tags"),
            ("services: {? !!binary aGVhZA== : {command: [hush]}}", "only tags"),
            ("services: {a: !<tag:yaml.org,2002:map> {}}", "only tags"),
            ("%TAG !r! tag:yaml.org,2002:\n---\nservices: {a: {image: !r!binary eA==}}", "only tags"),
            ("services: {a: !Reset {}}", "only tags"),
            ("services: {a: {1: x}}", "not text"),
            ("services: {a: {? [x] : y}}", "not text"),
            ("services: {a: {image: x, image: y}}", "duplicate"),
            ("services: {}\nservices: {}", "duplicate"),
            ("services: {}\n---\nservices: {}", "more than one document"),
            ("services: {a: {<<: 1}}", "merge key"),
            ("services: {a: {<<: [{}, 1]}}", "merge key"),
            ("services: {a: &a {b: *a}}", "part of what it stands for"),
            ("services: {a: {image: \"x\u{2028}y\"}}", "line break"),
            (&format!("services: {{}}\nx-a:\n  a0: &a0 [x]\n{bomb}"), "more than 200000"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn merge_keys_hide_nothing() {
        let text = "x-a: &a {b: 1}\nx-c: &c {<<: *a, b: 2}\nservices: {s: {b: 3, <<: [*c, *a]}}";
        let services = read(text).unwrap().into_iter().find(|(key, _)| key == "services").unwrap().1;
        let all = ["3", "2", "1", "1"].map(|number| ("b".to_owned(), Part::Number(number.to_owned())));
        assert_eq!(services, Part::Map(vec![("s".to_owned(), Part::Map(all.to_vec()))]));
    }
}
