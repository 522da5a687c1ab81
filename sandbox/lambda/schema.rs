//! A validator for the subset of JSON Schema that the contract uses.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use regex::Regex;
use serde_json::Value;

/// The supported keywords; a test checks that the contract has no others.
#[cfg(test)]
pub(super) const KEYWORDS: [&str; 18] = [
    "$ref",
    "additionalProperties",
    "anyOf",
    "const",
    "default",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
];

/// A violation of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) kind: ProblemKind,
    pub(super) text: String,
}

/// The kind of a violation; unknown fields and values can be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProblemKind {
    UnknownField,
    UnknownValue,
    Other,
}

/// A document whose schemas refer to each other.
#[derive(Debug)]
pub(super) struct Schemas<'a> {
    pub(super) root: &'a Value,
    pub(super) patterns: &'a BTreeMap<String, Regex>,
}

impl Schemas<'_> {
    /// Violations of a schema by a value; an object may have only the declared fields.
    pub(super) fn check(&self, schema: &Value, value: &Value) -> Vec<Problem> {
        let mut found = Vec::new();
        self.walk(schema, value, "", &mut found);
        found
    }

    fn walk(&self, schema: &Value, value: &Value, at: &str, found: &mut Vec<Problem>) {
        if let Some(pointer) = schema["$ref"].as_str() {
            match pointer.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)) {
                Some(meant) => self.walk(meant, value, at, found),
                None => other(found, at, format!("the contract has no {pointer}")),
            }
            return;
        }
        if let Some(choices) = schema["anyOf"].as_array() {
            let mut tried = choices.iter().map(|choice| {
                let mut found = Vec::new();
                self.walk(choice, value, at, &mut found);
                found
            });
            // Report the violations of the closest choice.
            if let Some(nearest) = tried.by_ref().min_by_key(Vec::len) {
                found.extend(nearest);
            }
            return;
        }
        if let Some(kind) = schema["type"].as_str()
            && !is_of(kind, value)
        {
            other(found, at, format!("is not of type {kind}"));
            return;
        }
        if schema.get("const").is_some_and(|meant| meant != value) {
            other(found, at, format!("is not {}", schema["const"]));
        }
        if schema["enum"].as_array().is_some_and(|choices| !choices.contains(value)) {
            let text = format!("{}{value} is not one of {}", place(at), schema["enum"]);
            found.push(Problem { kind: ProblemKind::UnknownValue, text });
        }
        match value {
            Value::Object(_) => self.object(schema, value, at, found),
            Value::Array(items) => self.array(schema, items, at, found),
            Value::String(text) => self.text(schema, text, at, found),
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or(f64::NAN);
                let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
                if least.is_some_and(|least| number < least) || most.is_some_and(|most| number > most) {
                    other(found, at, format!("{number} is out of range"));
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn object(&self, schema: &Value, value: &Value, at: &str, found: &mut Vec<Problem>) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if value.get(name).is_none() {
                other(found, at, format!("lacks `{name}`"));
            }
        }
        for (name, inner) in value.as_object().into_iter().flatten() {
            let below = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
            match (schema["properties"].get(name), schema.get("additionalProperties")) {
                (Some(meant), _) => self.walk(meant, inner, &below, found),
                (None, Some(meant @ Value::Object(_))) => self.walk(meant, inner, &below, found),
                _ => found.push(Problem { kind: ProblemKind::UnknownField, text: format!("`{below}` is not known") }),
            }
        }
    }

    fn array(&self, schema: &Value, items: &[Value], at: &str, found: &mut Vec<Problem>) {
        if is_out_of(items.len(), &schema["minItems"], &schema["maxItems"]) {
            other(found, at, format!("has {} items", items.len()));
        }
        if schema["items"].is_object() {
            for (number, item) in items.iter().enumerate() {
                self.walk(&schema["items"], item, &format!("{at}[{number}]"), found);
            }
        }
    }

    fn text(&self, schema: &Value, text: &str, at: &str, found: &mut Vec<Problem>) {
        let length = text.chars().count();
        if is_out_of(length, &schema["minLength"], &schema["maxLength"]) {
            other(found, at, format!("has {length} characters"));
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && !self.patterns.get(pattern).is_some_and(|pattern| pattern.is_match(text))
        {
            other(found, at, format!("does not match {pattern}"));
        }
        let is_fine = match schema["format"].as_str() {
            Some("date-time") => text.parse::<jiff::Timestamp>().is_ok(),
            Some("ipv4network") => network(text).is_some(),
            _ => true,
        };
        if !is_fine {
            other(found, at, format!("is not a valid {}", schema["format"].as_str().unwrap_or_default()));
        }
    }
}

/// Normalizes an IPv4 network to `ADDRESS/BITS`; `None` if host bits are set.
pub(super) fn network(text: &str) -> Option<String> {
    let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
    let (address, bits): (Ipv4Addr, u32) = (address.parse().ok()?, bits.parse().ok()?);
    let host = u32::MAX.checked_shr(bits).unwrap_or(0);
    (bits <= 32 && u32::from(address) & host == 0).then(|| format!("{address}/{bits}"))
}

/// Compiles all patterns below a value.
pub(super) fn patterns(schema: &Value, found: &mut BTreeMap<String, Regex>) {
    match schema {
        Value::Object(fields) => {
            if let Some(pattern) = fields.get("pattern").and_then(Value::as_str)
                && let Ok(ready) = Regex::new(pattern)
            {
                found.insert(pattern.to_owned(), ready);
            }
            fields.values().for_each(|inner| patterns(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| patterns(inner, found)),
        _ => {}
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => false,
    }
}

fn is_out_of(count: usize, least: &Value, most: &Value) -> bool {
    let limit = |value: &Value| value.as_u64().and_then(|value| usize::try_from(value).ok());
    limit(least).is_some_and(|least| count < least) || limit(most).is_some_and(|most| count > most)
}

fn place(at: &str) -> String {
    if at.is_empty() { String::new() } else { format!("`{at}` ") }
}

fn other(found: &mut Vec<Problem>, at: &str, text: String) {
    found.push(Problem { kind: ProblemKind::Other, text: format!("{}{text}", place(at)) });
}
