//! What a change does to an object, field by field, as the API server says it. Pure.

use serde_json::Value;

use super::names::{ObjectKind, PODS};
use crate::util::text::shortened;

/// How many changed fields are named.
const MOST: usize = 12;

/// The fields that differ between an object and what it would become, one line each.
pub(super) fn lines(kind: ObjectKind, now: &Value, then: &Value) -> Vec<String> {
    let mut changes = Vec::new();
    for part in ["spec", "data", "binaryData"] {
        differ(part, &now[part], &then[part], &mut changes);
    }
    differ("metadata.labels", &now["metadata"]["labels"], &then["metadata"]["labels"], &mut changes);
    // The digest of a template changes with what it is the digest of.
    changes.retain(|(path, _)| !path.ends_with(PODS));
    let more = changes.len().saturating_sub(MOST);
    let of_files = kind == ObjectKind::Preparation;
    let mut lines: Vec<String> = changes
        .into_iter()
        .take(MOST)
        .map(|(path, change)| match of_files {
            true => format!("{}: {path} changes", kind.name()),
            false => format!("{}: {path}: {change}", kind.name()),
        })
        .collect();
    if more > 0 {
        lines.push(format!("{}: and {more} more fields", kind.name()));
    }
    lines
}

fn differ(path: &str, now: &Value, then: &Value, changes: &mut Vec<(String, String)>) {
    match (now, then) {
        _ if now == then => {}
        (Value::Object(before), Value::Object(after)) => {
            let added = after.keys().filter(|name| !before.contains_key(*name));
            for name in before.keys().chain(added) {
                differ(&format!("{path}.{name}"), &now[name], &then[name], changes);
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for (index, one) in before.iter().enumerate() {
                let other = match name(one) {
                    Some(known) => after.iter().find(|other| name(other) == Some(known)),
                    None => after.get(index),
                };
                let place = name(one).map_or_else(|| index.to_string(), str::to_owned);
                differ(&format!("{path}[{place}]"), one, other.unwrap_or(&Value::Null), changes);
            }
            for (index, one) in after.iter().enumerate() {
                let is_new = match name(one) {
                    Some(known) => !before.iter().any(|other| name(other) == Some(known)),
                    None => index >= before.len(),
                };
                if is_new {
                    let place = name(one).map_or_else(|| index.to_string(), str::to_owned);
                    differ(&format!("{path}[{place}]"), &Value::Null, one, changes);
                }
            }
        }
        (now, then) => changes.push((path.to_owned(), format!("{} -> {}", value(now), value(then)))),
    }
}

/// What a list's entry is known by.
fn name(entry: &Value) -> Option<&str> {
    ["name", "groupName", "containerPort", "mountPath"].iter().find_map(|key| entry[*key].as_str())
}

fn value(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => shortened(text),
        other => shortened(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_named_by_its_field() {
        let group = |name: &str, image: &str| json!({ "groupName": name, "template": { "metadata": { "labels": { PODS: image } }, "spec": { "containers": [{ "name": "ray-worker", "image": image }] } } });
        let now = json!({ "spec": { "suspend": false, "workerGroupSpecs": [group("gpu", "a"), group("cpu", "a")] }, "status": { "x": 1 } });
        let then = json!({ "spec": { "suspend": false, "workerGroupSpecs": [group("cpu", "a"), group("gpu", "b"), { "groupName": "new" }] }, "status": { "x": 2 } });
        assert_eq!(
            lines(ObjectKind::RayCluster, &now, &then),
            [
                "raycluster: spec.workerGroupSpecs[gpu].template.spec.containers[ray-worker].image: a -> b",
                "raycluster: spec.workerGroupSpecs[new]: nothing -> {\"groupName\":\"new\"}",
            ]
        );
        assert!(lines(ObjectKind::RayCluster, &now, &now).is_empty());
        let queue =
            |name: &str| json!({ "metadata": { "labels": { "kueue.x-k8s.io/queue-name": name }, "generation": 1 } });
        assert_eq!(
            lines(ObjectKind::RayCluster, &queue("a"), &queue("b")),
            ["raycluster: metadata.labels.kueue.x-k8s.io/queue-name: a -> b"]
        );
        let file = |text: &str| json!({ "data": { "start.json": text, "fill.py": "x" } });
        assert_eq!(
            lines(ObjectKind::Preparation, &file("1"), &file("2")),
            ["configmap: data.start.json changes"],
            "a file's content is not shown"
        );
        let many = |value: u32| json!({ "spec": (0..20).map(|number| (number.to_string(), json!(value))).collect::<serde_json::Map<_, _>>() });
        let lines = lines(ObjectKind::Policy, &many(1), &many(2));
        assert_eq!((lines.len(), lines.last().unwrap().as_str()), (13, "networkpolicy: and 8 more fields"));
    }
}
