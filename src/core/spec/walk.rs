//! Validates the tree against the JSON Schema: unknown keys, wrong types and values out of range, each at its position.
//!
//! It supports the part of JSON Schema that our own types produce; `validate.rs` checks the meaning of the keys.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::node::{Node, NodeKind, shortened};
use super::place::{Problem, item, join};
use super::{Amount, Deadline, Memory};
use crate::name::ClusterName;
use crate::util::duration::SpecDuration;
use crate::util::near::nearest;

/// Validates the tree; returns its valid parts as JSON, for the checks that follow.
pub(super) fn walk(root: &Node, schema: &Value, problems: &mut Vec<Problem>) -> Value {
    walk_below(root, schema, "", problems).unwrap_or(Value::Null)
}

/// Validates the part of a tree at this path; returns its valid parts, if it is one.
pub(super) fn walk_below(part: &Node, schema: &Value, path: &str, problems: &mut Vec<Problem>) -> Option<Value> {
    Walk { definitions: schema.get("$defs").unwrap_or(&Value::Null), problems }.node(part, schema, path)
}

struct Walk<'a> {
    definitions: &'a Value,
    problems: &'a mut Vec<Problem>,
}

impl Walk<'_> {
    /// The value, if it is valid.
    fn node(&mut self, node: &Node, schema: &Value, path: &str) -> Option<Value> {
        if let Some(name) = reference(schema) {
            let value = self.node(node, self.definitions.get(name)?, path)?;
            return match own_form(name, &value) {
                Ok(()) => Some(value),
                Err(message) => self.wrong(path, message),
            };
        }
        if let Some(forms) = schema.get("anyOf").and_then(Value::as_array) {
            return self.one_of_forms(node, forms, path);
        }
        if let Some(words) = words(schema) {
            return self.word(node, &words, path);
        }
        match types(schema).as_slice() {
            // Unrestricted: checked by the provider.
            [] => Some(node.to_json()),
            types if !types.iter().any(|wanted| fits(node, wanted)) => self.wrong_type(node, schema, types, path),
            _ => match &node.kind {
                NodeKind::Map(_) => self.map(node, schema, path),
                NodeKind::List(_) => self.list(node, schema, path),
                NodeKind::Scalar { text, value } => match out_of_range(value, schema) {
                    Some(range) => self.wrong(path, format!("{} is out of range: {range}", shortened(text))),
                    None => Some(value.clone()),
                },
            },
        }
    }

    fn one_of_forms(&mut self, node: &Node, forms: &[Value], path: &str) -> Option<Value> {
        if node.is_null() && forms.iter().any(|form| types(form) == ["null"]) {
            return Some(Value::Null);
        }
        let definitions = self.definitions;
        let forms = flattened(forms, definitions);
        let fitting = forms.iter().find(|form| {
            let form = resolved(form, definitions);
            let is_word =
                |words: Vec<&str>| matches!(&node.kind, NodeKind::Scalar { text, .. } if words.contains(&text.as_str()));
            types(form).iter().any(|of| fits(node, of)) && (forms.len() == 1 || words(form).is_none_or(is_word))
        });
        match (fitting, forms.as_slice()) {
            (Some(form), _) => self.node(node, form, path),
            (None, [only]) => self.node(node, only, path),
            (None, _) => {
                let wanted: Vec<&str> = forms.iter().flat_map(|form| names(resolved(form, definitions))).collect();
                self.wrong_type(node, &Value::Null, &wanted, path)
            }
        }
    }

    fn word(&mut self, node: &Node, words: &[&str], path: &str) -> Option<Value> {
        let NodeKind::Scalar { text, .. } = &node.kind else {
            return self.wrong(path, format!("is {}, must be one of: {}", node.what(), words.join(", ")));
        };
        if words.contains(&text.as_str()) {
            return Some(Value::String(text.clone()));
        }
        if node.is_null() {
            return self.wrong(path, format!("is empty, must be one of: {}", words.join(", ")));
        }
        let problem = Problem::new(path, format!("`{}` must be one of: {}", shortened(text), words.join(", ")));
        self.problems.push(match nearest(text, words.iter().copied()) {
            Some(near) => problem.note(format!("did you mean `{near}`?")),
            None => problem,
        });
        None
    }

    fn map(&mut self, node: &Node, schema: &Value, path: &str) -> Option<Value> {
        let NodeKind::Map(entries) = &node.kind else {
            return None;
        };
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let others = schema.get("additionalProperties");
        let mut values = Map::new();
        for (key, child) in entries {
            let below = join(path, &key.text);
            let value = match (properties.get(&key.text), others) {
                (Some(schema), _) => self.node(child, schema, &below),
                (None, Some(Value::Bool(false))) => {
                    let known = properties.keys().map(String::as_str);
                    let mut problem = unknown_key(Problem::of_key(&below, ""), &key.text, known.clone());
                    if let Some(parent) = self.parent_of(&key.text, properties) {
                        problem.notes = vec![format!("it belongs under `{}`", join(path, parent))];
                    }
                    if let Some(now) =
                        schema.get("moved").and_then(|moved| moved.get(&key.text)).and_then(Value::as_str)
                    {
                        problem.notes = vec![now.to_owned()];
                    }
                    let meant = nearest(&key.text, known).map(|near| join(path, near));
                    self.problems.push(Problem { meant, ..problem });
                    None
                }
                (None, Some(schema)) => self.node(child, schema, &below),
                (None, None) => Some(child.to_json()),
            };
            if let Some(value) = value {
                values.insert(key.text.clone(), value);
            }
        }
        let mut is_whole = true;
        for key in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if entries.iter().any(|(there, _)| there.text == key) {
                continue;
            }
            is_whole = false;
            let missing = join(path, key);
            // A misspelt key is reported once.
            if self.problems.iter().any(|problem| problem.meant.as_ref() == Some(&missing)) {
                continue;
            }
            let problem = Problem::new(missing, "is missing");
            self.problems.push(if path.is_empty() { problem.note("for example: `name: demo`") } else { problem });
        }
        (is_whole || path.is_empty()).then_some(Value::Object(values))
    }

    fn list(&mut self, node: &Node, schema: &Value, path: &str) -> Option<Value> {
        let NodeKind::List(items) = &node.kind else {
            return None;
        };
        let bound = |name: &str| schema.get(name).and_then(Value::as_u64).and_then(|bound| usize::try_from(bound).ok());
        if let Some(least) = bound("minItems").filter(|least| items.len() < *least) {
            return self.wrong(path, format!("has {} entries, must have at least {least}", items.len()));
        }
        if let Some(most) = bound("maxItems").filter(|most| items.len() > *most) {
            return self.wrong(path, format!("has {} entries, may have at most {most}", items.len()));
        }
        let free = Value::Bool(true);
        let each = schema.get("items").unwrap_or(&free);
        let values: Vec<Option<Value>> =
            items.iter().enumerate().map(|(index, child)| self.node(child, each, &item(path, index))).collect();
        values.into_iter().collect::<Option<Vec<Value>>>().map(Value::Array)
    }

    /// The only one of these properties that is a map with this key.
    fn parent_of<'a>(&self, key: &str, properties: &'a Map<String, Value>) -> Option<&'a str> {
        let has = |schema: &Value| {
            let forms =
                schema.get("anyOf").and_then(Value::as_array).map_or(std::slice::from_ref(schema), Vec::as_slice);
            forms.iter().any(|form| {
                resolved(form, self.definitions).pointer("/properties").and_then(|of| of.get(key)).is_some()
            })
        };
        let mut parents = properties.iter().filter(|(_, schema)| has(schema)).map(|(name, _)| name.as_str());
        parents.next().filter(|_| parents.next().is_none())
    }

    /// A single value that could be an item of the list that is wanted, as that list.
    fn list_of_one(&self, node: &Node, schema: &Value) -> Option<String> {
        let NodeKind::Scalar { value, .. } = &node.kind else { return None };
        let item = resolved(schema.get("items")?, self.definitions);
        (!node.is_null() && types(item).iter().any(|wanted| fits(node, wanted))).then(|| format!("[{value}]"))
    }

    fn wrong(&mut self, path: &str, message: String) -> Option<Value> {
        self.problems.push(Problem::new(path, message));
        None
    }

    fn wrong_type(&mut self, node: &Node, schema: &Value, wanted: &[&str], path: &str) -> Option<Value> {
        let names: Vec<&str> = wanted.iter().filter(|name| **name != "null").map(|name| type_name(name)).collect();
        let mut problem = Problem::new(path, format!("is {}, must be {}", node.what(), names.join(" or ")));
        let example = schema.get("examples").and_then(|examples| examples.get(0));
        if let Some(example) = example {
            let text = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
            problem = problem.note(format!("for example: {text}"));
        } else if let Some(list) = self.list_of_one(node, schema) {
            problem = problem.note(format!("a list of one is: {list}"));
        } else if let (NodeKind::Scalar { text, value: Value::Number(_) | Value::Bool(_) }, ["text"]) =
            (&node.kind, names.as_slice())
        {
            problem = problem.note(format!("in quotes it is text: \"{text}\""));
        } else if node.is_null() {
            problem = problem.note("give it a value, or leave the key out");
        }
        self.problems.push(problem);
        None
    }
}

/// Turns a problem into one about an unknown key, with the nearest known name or else all known names.
pub(super) fn unknown_key<'a>(mut problem: Problem, key: &str, known: impl Iterator<Item = &'a str>) -> Problem {
    let known: Vec<&str> = known.collect();
    problem.message = "unknown key".to_owned();
    match nearest(key, known.iter().copied()) {
        Some(near) => problem.note(format!("did you mean `{near}`?")),
        None if known.is_empty() => problem.note("no keys are allowed here"),
        None => problem.note(format!("known here: {}", known.join(", "))),
    }
}

/// The name of the definition that a schema refers to.
fn reference(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

/// The schema itself, or the definition that it refers to.
fn resolved<'a>(schema: &'a Value, definitions: &'a Value) -> &'a Value {
    reference(schema).and_then(|name| definitions.get(name)).unwrap_or(schema)
}

/// The forms that are not `null`, with the forms of those that have several themselves.
fn flattened<'a>(forms: &'a [Value], definitions: &'a Value) -> Vec<&'a Value> {
    let of = |form: &'a Value| match resolved(form, definitions).get("anyOf").and_then(Value::as_array) {
        Some(inner) => flattened(inner, definitions),
        None => vec![form],
    };
    forms.iter().filter(|form| types(form) != ["null"]).flat_map(of).collect()
}

/// The allowed texts, if the schema is an enumeration.
fn words(schema: &Value) -> Option<Vec<&str>> {
    let plain = |list: &'_ Value| list.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    if let Some(list) = schema.get("enum").filter(|list| plain(list)) {
        return Some(list.as_array()?.iter().filter_map(Value::as_str).collect());
    }
    schema.get("oneOf")?.as_array()?.iter().map(|form| form.get("const").and_then(Value::as_str)).collect()
}

/// What a value of this schema is called: the words of an enumeration, else its types.
fn names(schema: &Value) -> Vec<&str> {
    words(schema).unwrap_or_else(|| types(schema))
}

fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ if words(schema).is_some() => vec!["string"],
        _ => Vec::new(),
    }
}

fn fits(node: &Node, wanted: &str) -> bool {
    match (&node.kind, wanted) {
        (NodeKind::List(_), "array") | (NodeKind::Map(_), "object") => true,
        (NodeKind::Scalar { value, .. }, "string") => value.is_string(),
        (NodeKind::Scalar { value, .. }, "number") => value.is_number(),
        (NodeKind::Scalar { value, .. }, "integer") => value.is_u64() || value.is_i64(),
        (NodeKind::Scalar { value, .. }, "boolean") => value.is_boolean(),
        (NodeKind::Scalar { value, .. }, "null") => value.is_null(),
        _ => false,
    }
}

fn type_name(wanted: &str) -> &str {
    match wanted {
        "array" => "a list",
        "object" => "a map of keys",
        "string" => "text",
        "number" => "a number",
        "integer" => "a whole number",
        "boolean" => "true or false",
        other => other,
    }
}

/// The allowed range, if the number is out of it.
fn out_of_range(value: &Value, schema: &Value) -> Option<String> {
    let number = value.as_f64()?;
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    let (least, most) = (bound("minimum"), bound("maximum").or_else(|| most_of_format(schema)));
    let is_outside = least.is_some_and(|least| number < least) || most.is_some_and(|most| number > most);
    is_outside.then(|| match (least, most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("{least} or more"),
        (None, Some(most)) => format!("at most {most}"),
        (None, None) => String::new(),
    })
}

/// The largest number of a format that has no maximum in its schema.
fn most_of_format(schema: &Value) -> Option<f64> {
    match schema.get("format")?.as_str()? {
        "uint32" => Some(f64::from(u32::MAX)),
        "int32" => Some(f64::from(i32::MAX)),
        _ => None,
    }
}

/// Reads a value with the type behind a definition, if that type has its own text format.
fn own_form(definition: &str, value: &Value) -> Result<(), String> {
    fn read<T: DeserializeOwned>(value: &Value) -> Result<(), String> {
        serde_json::from_value::<T>(value.clone()).map(|_| ()).map_err(|error| error.to_string())
    }
    match definition {
        "ClusterName" => read::<ClusterName>(value),
        "Duration" => read::<SpecDuration>(value),
        "Memory" => read::<Memory>(value),
        "Deadline" => read::<Deadline>(value),
        "Amount" => read::<Amount>(value),
        _ => Ok(()),
    }
}
