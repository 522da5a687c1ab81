//! Validates what only a provider knows, the keys under `provider:` and in each entry of `hosts:`, against the schemas that
//! it gives, so that each mistake has its place in the file.

use serde_json::{Map, Value};

use super::ProviderChoice;
use super::node::{Key, Mark, Node, NodeKind};
use super::place::{Problem, item};
use super::walk::walk_below;
use crate::provider::{Factory, FieldError, Lookup};

const NAME: &str = "name";

/// Validates the keys of the spec's provider in the tree, and leaves only the valid ones in `right`.
///
/// An unknown provider, or one without a name, is reported by others.
pub(super) fn walk_provider(root: &Node, right: &mut Value, lookup: Lookup<'_>, problems: &mut Vec<Problem>) {
    let default = ProviderChoice::default();
    let chosen = child(root, "provider");
    let (name, settings) = match chosen.map(|node| &node.kind) {
        None => (default.name(), None),
        Some(NodeKind::Scalar { value: Value::String(name), .. }) => (name.as_str(), None),
        Some(NodeKind::Map(entries)) => {
            let Some(Value::String(name)) = chosen.and_then(|node| child(node, NAME)).and_then(Node::scalar) else {
                return;
            };
            (name.as_str(), Some(entries.iter().filter(|(key, _)| key.text != NAME).cloned().collect()))
        }
        Some(_) => return,
    };
    let Ok(factory) = lookup(name) else { return };
    if let (Some(settings), Some(chosen)) = (settings, chosen) {
        let settings = Node { at: chosen.at, kind: NodeKind::Map(settings) };
        let schema = factory.settings_schema().to_value();
        let valid = walk_below(&settings, &schema, "provider", problems);
        let mut keys = Map::from_iter([(NAME.to_owned(), Value::String(name.to_owned()))]);
        keys.extend(valid.as_ref().and_then(Value::as_object).cloned().unwrap_or_default());
        if let Value::Object(right) = right {
            right.insert("provider".to_owned(), Value::Object(keys));
        }
    }
    let schema = factory.host_schema().to_value();
    let mut hosts = |index: usize, node: &Node| {
        // An entry that is not whole stays, so that the others keep their numbers.
        let valid = walk_below(&or_empty_map(node), &schema, &item("hosts", index), problems);
        if let (Some(valid), Some(entry)) = (valid, right.get_mut("hosts").and_then(|hosts| hosts.get_mut(index))) {
            *entry = valid;
        }
    };
    match child(root, "hosts").map(|node| &node.kind) {
        None => hosts(0, &Node { at: root.at, kind: NodeKind::Map(Vec::new()) }),
        Some(NodeKind::List(items)) => items.iter().enumerate().for_each(|(index, node)| hosts(index, node)),
        Some(_) => {}
    }
}

/// Every mistake in the settings and hosts of a provider that are given without a file.
pub fn check_settings(factory: &dyn Factory, settings: &Value, hosts: &[Value]) -> Vec<FieldError> {
    let mut problems = Vec::new();
    walk_below(&or_empty_map(&node(settings)), &factory.settings_schema().to_value(), "", &mut problems);
    let schema = factory.host_schema().to_value();
    for (index, host) in hosts.iter().enumerate() {
        walk_below(&or_empty_map(&node(host)), &schema, &item("hosts", index), &mut problems);
    }
    if problems.is_empty() {
        return factory.check(settings, hosts);
    }
    let described = |problem: Problem| FieldError {
        message: [vec![problem.message], problem.notes].concat().join("; "),
        path: problem.path,
        known: Vec::new(),
    };
    problems.into_iter().map(described).collect()
}

fn child<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let NodeKind::Map(entries) = &node.kind else { return None };
    entries.iter().find(|(key, _)| key.text == name).map(|(_, child)| child)
}

/// An empty value means a map without keys: `- ` in a list of hosts.
fn or_empty_map(node: &Node) -> Node {
    if node.is_null() { Node { at: node.at, kind: NodeKind::Map(Vec::new()) } } else { node.clone() }
}

/// A value that is in no file, as a tree.
fn node(value: &Value) -> Node {
    let at = Mark { line: 1, column: 1, length: 0 };
    let kind = match value {
        Value::Object(keys) => {
            NodeKind::Map(keys.iter().map(|(text, below)| (Key { text: text.clone(), at }, node(below))).collect())
        }
        Value::Array(items) => NodeKind::List(items.iter().map(node).collect()),
        Value::String(text) => NodeKind::Scalar { text: text.clone(), value: value.clone() },
        other => NodeKind::Scalar { text: other.to_string(), value: other.clone() },
    };
    Node { at, kind }
}
