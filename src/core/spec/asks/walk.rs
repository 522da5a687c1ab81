//! The walk over a schema and the values of a spec.

use serde::Deserialize;
use serde_json::Value;

use super::Class;
use crate::spec::place::{item, join};

/// What a key may ask, as its schema says it under `asks`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Rule {
    /// A value that is set asks for something, in these words.
    Says(Says),
    /// Code decides.
    Special { rule: Special },
    /// A flag of the command line allows it; without it the spec is refused when it is read.
    Flag {
        /// The flag, for whoever reads the schema.
        #[serde(rename = "flag")]
        _flag: String,
    },
}

/// A value that is set asks for something.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Says {
    pub(super) class: Class,
    /// The words; `{}` stands for the value.
    pub(super) says: String,
    /// On which machines.
    #[serde(default)]
    pub(super) on: On,
    /// Values that ask nothing; those that are not set never do.
    #[serde(default)]
    pub(super) unless: Vec<Value>,
    /// Planning would already do it.
    #[serde(default)]
    pub(super) before_plan: bool,
}

/// The machines of a cluster on which a key asks for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum On {
    #[default]
    All,
    /// The reader's own machine.
    Here,
    /// Those that are still there when the cluster is gone.
    Outliving,
}

/// What needs more than the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Special {
    /// Compose files, of which most asks nothing.
    Compose,
    /// Files of this machine that are sent.
    Files,
    /// The URL of a git repository.
    Git,
    /// Environment variables, some of which load programs.
    Environment,
    /// A file of this machine that names servers and programs, such as a kubeconfig.
    Login,
    /// A private key of the reader's, which is used here and sent nowhere.
    Key,
    /// The path of a folder of a host.
    HostFolder,
    /// An existing object store.
    Store,
    /// An existing MLflow server.
    Tracking,
    /// Environment modules of a site.
    Modules,
    /// A folder of the reader's that files are copied into, beyond the cluster.
    SavedTo,
    /// The webhook that news goes to.
    Webhook,
    /// The program of the reader's machine that is given news.
    NotifyCommand,
}

/// A key of a spec with a rule.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KeyWithRule {
    pub(super) path: String,
    pub(super) rule: Rule,
    pub(super) value: Value,
}

/// Every key of a value whose schema has a rule.
pub(super) fn found(schema: &Value, value: &Value, path: &str) -> Vec<KeyWithRule> {
    let mut all = Vec::new();
    let walk = Walk { definitions: schema.get("$defs").unwrap_or(&Value::Null) };
    walk.visit(schema, value, path, &mut all);
    all
}

struct Walk<'a> {
    definitions: &'a Value,
}

impl<'a> Walk<'a> {
    /// The forms that a schema may take, references followed.
    fn forms(&self, schema: &'a Value) -> Vec<&'a Value> {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix("#/$defs/")) {
            return self.definitions.get(name).map(|schema| self.forms(schema)).unwrap_or_default();
        }
        let several = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array());
        match several {
            Some(forms) => forms.iter().flat_map(|form| self.forms(form)).collect(),
            None => vec![schema],
        }
    }

    fn visit(&self, schema: &'a Value, value: &Value, path: &str, all: &mut Vec<KeyWithRule>) {
        for form in self.forms(schema) {
            match value {
                Value::Object(entries) => {
                    for (key, value) in entries {
                        let Some(below) = property(form, key) else { continue };
                        let path = join(path, key);
                        match rule(below) {
                            Some(rule) => all.push(KeyWithRule { path, rule, value: value.clone() }),
                            None => self.visit(below, value, &path, all),
                        }
                    }
                }
                Value::Array(items) => {
                    let Some(each) = form.get("items") else { continue };
                    for (index, value) in items.iter().enumerate() {
                        self.visit(each, value, &item(path, index), all);
                    }
                }
                _ => {}
            }
        }
    }

    fn check(&self, schema: &'a Value, path: &str, above: &mut Vec<*const Value>, seen: &mut Seen) {
        for form in self.forms(schema) {
            if above.contains(&std::ptr::from_ref(form)) {
                continue;
            }
            above.push(std::ptr::from_ref(form));
            let properties = form.get("properties").and_then(Value::as_object);
            for (key, below) in properties.into_iter().flatten() {
                let path = join(path, key);
                if rule(below).is_some() {
                    seen.classified.push(path);
                } else if !asks_nothing(form, key) {
                    match self.has_keys(below) {
                        true => self.check(below, &path, above, seen),
                        false => seen.unclassified.push(path),
                    }
                }
            }
            for inner in ["items", "additionalProperties"] {
                if let Some(below) = form.get(inner).filter(|below| below.is_object()) {
                    self.check(below, &format!("{path}[]"), above, seen);
                }
            }
            above.pop();
        }
    }

    /// Whether keys of its own are below it, each of which says what it asks.
    fn has_keys(&self, schema: &'a Value) -> bool {
        self.forms(schema).iter().any(|form| {
            let inner = ["items", "additionalProperties"].iter().filter_map(|key| form.get(*key));
            form.get("properties").is_some()
                || inner.filter(|inner| inner.is_object()).any(|inner| self.has_keys(inner))
        })
    }
}

#[derive(Default)]
struct Seen {
    classified: Vec<String>,
    unclassified: Vec<String>,
}

fn seen(schema: &Value) -> Seen {
    let mut seen = Seen::default();
    let walk = Walk { definitions: schema.get("$defs").unwrap_or(&Value::Null) };
    walk.check(schema, "", &mut Vec::new(), &mut seen);
    seen
}

/// The keys of a schema that do not say what they ask of their reader.
pub fn unclassified(schema: &Value) -> Vec<String> {
    seen(schema).unclassified
}

/// The keys of a schema that may ask for something.
pub fn classified(schema: &Value) -> Vec<String> {
    seen(schema).classified
}

/// The schema of a key: its own, or that of all keys of a map.
fn property<'a>(form: &'a Value, key: &str) -> Option<&'a Value> {
    let own = form.get("properties").and_then(|properties| properties.get(key));
    own.or_else(|| form.get("additionalProperties").filter(|other| other.is_object()))
}

fn asks_nothing(form: &Value, key: &str) -> bool {
    form.get("asks_nothing").and_then(Value::as_array).is_some_and(|names| names.iter().any(|name| name == key))
}

/// The rule of a key. One that cannot be read counts as none, so that the test of all keys fails.
fn rule(schema: &Value) -> Option<Rule> {
    serde_json::from_value(schema.get("asks")?.clone()).ok()
}
