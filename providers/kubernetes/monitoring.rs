//! The Prometheus of a Kubernetes cluster: found by its operator's objects, and given the labels that it selects by.

use std::collections::BTreeMap;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Value, json};

use super::Kubernetes;
use super::client::{KubeContext, call, values};
use super::names::MONITORING_GROUP;
use super::refusal;
use crate::error::{Error, ErrorKind, Result};
use crate::provider::platform::Prometheus;

/// The label with a namespace's name, which every namespace has.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// How somebody who may not look says it.
const BY_HAND: &str = "provider: {prometheus: {labels: {release: prometheus}, namespace: monitoring}}   \
                       # who may look: kubectl get prometheus -A -o yaml";

impl Kubernetes {
    /// The Prometheus that the settings name, or the first one that selects PodMonitors of this namespace.
    pub(super) async fn find_prometheus(&self) -> Result<Prometheus> {
        if let Some(given) = &self.renderer.settings.prometheus {
            return Ok(found("the Prometheus of the settings", given.labels.clone(), &given.namespace));
        }
        let place = self.place().await?;
        let doing = format!("find the Prometheus that collects metrics in {}", place.namespace);
        let (all, namespace) = tokio::join!(list(place), namespace_labels(place));
        let all = all.map_err(|error| match refusal::is_absent(&error) {
            true if refusal::is_forbidden(&error) => error.hint(BY_HAND),
            true => Error::new(ErrorKind::NotFound, &doing)
                .because("this Kubernetes cluster has no Prometheus Operator")
                .hint(
                    "leave out `services: {prometheus: existing}`, or an administrator installs kube-prometheus-stack",
                ),
            false => error,
        })?;
        let mut refused = Vec::new();
        for one in &all {
            match selects(one, &place.namespace, &namespace) {
                Ok(prometheus) => return Ok(prometheus),
                Err(why) => refused.push(why),
            }
        }
        let none = if all.is_empty() { Some("there is none".to_owned()) } else { None };
        let error = Error::new(ErrorKind::NotFound, doing);
        Err(refused.into_iter().chain(none).fold(error, Error::because).hint(BY_HAND))
    }
}

fn found(name: &str, labels: BTreeMap<String, String>, namespace: &str) -> Prometheus {
    // The operator makes this service beside each of them.
    let address = format!("http://prometheus-operated.{namespace}.svc:9090");
    Prometheus { name: name.to_owned(), labels, namespace: namespace.to_owned(), address }
}

async fn list(place: &KubeContext) -> Result<Vec<Value>> {
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(MONITORING_GROUP, "v1", "Prometheus"), "prometheuses");
    let api: Api<DynamicObject> = Api::all_with(place.client.clone(), &kind);
    let params = ListParams::default();
    let found = call("list the prometheuses of all namespaces", || api.list(&params)).await?;
    values(&found)
}

/// The labels of the namespace; its name alone where the user may not look at it.
async fn namespace_labels(place: &KubeContext) -> BTreeMap<String, String> {
    let api = place.all_core_objects("Namespace");
    let found = call("look at the namespace", || api.get(&place.namespace)).await.ok();
    let mut labels = found.and_then(|namespace| namespace.metadata.labels).unwrap_or_default();
    labels.insert(NAME_LABEL.to_owned(), place.namespace.clone());
    labels
}

/// What a Prometheus selects, or why it selects no PodMonitor of this namespace.
fn selects(
    object: &Value,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> std::result::Result<Prometheus, String> {
    let own = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let name = format!("the Prometheus {own}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
    let spec = &object["spec"];
    // No selector of namespaces means its own; an empty one means all (Prometheus Operator 0.90, `PrometheusSpec`).
    let namespaces = &spec["podMonitorNamespaceSelector"];
    let admits = match namespaces {
        Value::Null => own == namespace,
        selector => wanted(selector).is_some_and(|wanted| {
            wanted.iter().all(|(name, value)| match value {
                Some(value) => labels.get(name) == Some(value),
                None => labels.contains_key(name),
            })
        }),
    };
    if !admits {
        return Err(format!(
            "{name} does not look into the namespace {namespace}: podMonitorNamespaceSelector {namespaces}"
        ));
    }
    let selector = &spec["podMonitorSelector"];
    match selector {
        Value::Null => Err(format!("{name} selects no PodMonitors")),
        selector => match wanted(selector) {
            Some(wanted) => {
                let labels = wanted.into_iter().map(|(name, value)| (name, value.unwrap_or_else(|| "true".to_owned())));
                Ok(found(&name, labels.collect(), own))
            }
            None => Err(format!("{name} selects by what no label can have: podMonitorSelector {selector}")),
        },
    }
}

/// The labels that a selector asks for, each with a value or with any; `None` if it is not met by labels that are there.
fn wanted(selector: &Value) -> Option<BTreeMap<String, Option<String>>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let exact = selector["matchLabels"].as_object().into_iter().flatten();
    let mut wanted: BTreeMap<String, Option<String>> = exact.map(|(name, value)| (name.clone(), text(value))).collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let name = text(&expression["key"])?;
        match expression["operator"].as_str()? {
            "Exists" => {
                wanted.entry(name).or_insert(None);
            }
            "In" => {
                let value = text(&expression["values"][0])?;
                wanted.insert(name, Some(value));
            }
            // A label that we do not set.
            "NotIn" | "DoesNotExist" if !wanted.contains_key(&name) => {}
            _ => return None,
        }
    }
    Some(wanted)
}

/// The rule by which a NetworkPolicy lets a Prometheus in.
pub(super) fn peer(prometheus: &Prometheus) -> Value {
    json!({ "namespaceSelector": { "matchLabels": { NAME_LABEL: prometheus.namespace } } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_has_the_labels_that_a_prometheus_selects_by() {
        let of = |spec: Value| {
            let object = json!({ "metadata": { "name": "k8s", "namespace": "monitoring" }, "spec": spec });
            let labels = [(NAME_LABEL, "team-a"), ("team", "a")];
            let labels = labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            selects(&object, "team-a", &labels).map(|found| found.labels.into_iter().collect::<Vec<_>>())
        };
        let release = json!({ "matchLabels": { "release": "prom" } });
        let all = json!({});
        let labels = vec![("release".to_owned(), "prom".to_owned())];
        assert_eq!(
            of(json!({ "podMonitorSelector": release, "podMonitorNamespaceSelector": all })),
            Ok(labels.clone())
        );
        assert_eq!(of(json!({ "podMonitorSelector": all, "podMonitorNamespaceSelector": all })), Ok(Vec::new()));
        let team = json!({ "matchExpressions": [{ "key": "team", "operator": "In", "values": ["a"] }, { "key": "x", "operator": "DoesNotExist" }] });
        assert_eq!(of(json!({ "podMonitorSelector": release, "podMonitorNamespaceSelector": team })), Ok(labels));
        for (spec, why) in [
            (json!({ "podMonitorSelector": release }), "does not look into the namespace team-a"),
            (json!({ "podMonitorNamespaceSelector": all }), "selects no PodMonitors"),
            (
                json!({ "podMonitorSelector": release, "podMonitorNamespaceSelector": { "matchLabels": { "team": "b" } } }),
                "does not look into the namespace team-a",
            ),
        ] {
            assert!(of(spec.clone()).unwrap_err().contains(why), "{spec}");
        }
    }
}
