//! `services: {prometheus: existing}`: the real Prometheus of a Kubernetes cluster, which its real operator configures.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::testbed::{self, kubectl, nothing_is_left, place, turn};
use crate::support::{TestEnv, get, until_or};

/// A Prometheus that selects by `release: prometheus`, until this is dropped.
struct Prometheus {
    child: Child,
    url: String,
}

impl Prometheus {
    fn start() -> Self {
        let _ = testbed::testbed();
        let mut child = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/testbed/kube/prometheus"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let found: Value = serde_json::from_str(&line).unwrap();
        Self { child, url: found["url"].as_str().unwrap().to_owned() }
    }

    /// The values of a query, as text.
    fn query(&self, query: &str) -> String {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let url = format!("{}/api/v1/query?query={encoded}", self.url);
        get(&url, &[]).map(|(_, body)| body).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn existing(env: &TestEnv, user: &str, more: &Value) -> String {
    let workers = json!([{ "name": "cpu", "min": 1, "max": 2, "cpus": 1 }]);
    let settings = testbed::settings(user, more);
    testbed::spec(env, "seen", &settings, &workers, &json!({ "services": { "prometheus": "existing" } }))
}

#[test]
#[ignore = "by hand: just kube"]
fn an_existing_prometheus_collects_the_metrics_of_all_pods() {
    let _turn = turn();
    let env = TestEnv::new();
    let prometheus = Prometheus::start();
    let spec = existing(&env, "ada", &json!({}));
    env.run(&["plan", &spec]).exits(0).prints("metrics: the Prometheus monitoring/prometheus");
    env.run(&["up", "--yes", "--at", &place("ada"), &spec]).exits(0).prints("ready:");
    // The head's own, its autoscaler's and its dashboard's, and the worker's.
    let up = || prometheus.query("count(up{ray_io_cluster=~\"seen-.*\"} == 1)");
    until_or("four ports are collected from", 90, || up().contains("\"4\"]").then_some(()), up);
    let nodes = || prometheus.query("count(count by (instance) (ray_node_mem_total{ray_io_cluster=~\"seen-.*\"}))");
    until_or("the memory of two nodes is known", 60, || nodes().contains("\"2\"]").then_some(()), nodes);
    println!("Prometheus has {} and {}", up(), nodes());
    dashboards_are_rays_own(&prometheus);
    env.run(&["up", "--yes", &spec]).exits(0).prints("nothing was changed");
    // Without it, nothing of it stays.
    let workers = json!([{ "name": "cpu", "min": 1, "max": 2, "cpus": 1 }]);
    let without = testbed::spec(&env, "seen", &testbed::settings("ada", &json!({})), &workers, &json!({}));
    env.run(&["up", "--yes", &without]).exits(0).prints("ready:");
    assert_eq!(kubectl(&["-n", "team-a", "get", "podmonitors", "-o", "name"]) + &dashboards(), "");
    let spec = existing(&env, "ada", &json!({}));
    env.run(&["up", "--yes", &spec]).exits(0).prints("ready:");
    assert_ne!(dashboards(), "");
    env.run(&["down", "--yes", "-c", "seen"]).exits(0).says("removed: podmonitor");
    until_or("the dashboards go with the cluster", 30, || dashboards().is_empty().then_some(()), dashboards);
    nothing_is_left();
}

/// The ConfigMaps that Grafana's sidecar would find.
fn dashboards() -> String {
    kubectl(&["-n", "team-a", "get", "configmaps", "-l", "grafana_dashboard=1", "-o", "name"])
}

/// Grafana has Ray's dashboards, as those of this cluster: their queries find its metrics.
fn dashboards_are_rays_own(prometheus: &Prometheus) {
    let map = kubectl(&["-n", "team-a", "get", dashboards().trim(), "-o", "json"]);
    let map: Value = serde_json::from_str(&map).unwrap();
    let cluster = map["metadata"]["name"].as_str().unwrap().trim_end_matches("-dashboards").to_owned();
    let all = map["data"].as_object().unwrap();
    assert!(all.len() >= 3 && all.keys().all(|file| file.starts_with(&cluster)), "{:?}", all.keys());
    let of = |file: &str| serde_json::from_str::<Value>(all[&format!("{cluster}-{file}")].as_str().unwrap()).unwrap();
    let own = of("default_grafana_dashboard.json");
    assert_eq!(own["title"], format!("Ray Default Dashboard ({cluster})"));
    // What a panel asks for, with the cluster that the dashboard shows first.
    let variables = own["templating"]["list"].as_array().unwrap();
    let shown = variables.iter().find(|variable| variable["name"] == "Cluster").unwrap();
    assert!(shown["current"]["value"] == json!([cluster]) || shown["current"]["value"] == cluster, "{shown}");
    let mut queries = Vec::new();
    collect_queries(&own, &mut queries);
    let asks = queries.iter().find(|query| query.starts_with("avg(ray_node_cpu_utilization{")).unwrap();
    let asks = asks.replace("$Cluster", &cluster).replace("$SessionName", ".*").replace("$Instance", ".*");
    let found = || prometheus.query(&asks);
    until_or(
        "a query of a panel finds metrics",
        30,
        || found().contains("\"value\":").then_some(()),
        || format!("{asks}: {}", found()),
    );
}

/// The queries of the panels in a dashboard.
fn collect_queries(part: &Value, into: &mut Vec<String>) {
    match part {
        Value::Array(parts) => parts.iter().for_each(|part| collect_queries(part, into)),
        Value::Object(parts) => {
            into.extend(parts.get("expr").and_then(Value::as_str).map(str::to_owned));
            parts.values().for_each(|part| collect_queries(part, into));
        }
        _ => {}
    }
}

/// Where there is none that looks here, or the user may not look for one, it is said, and what to do.
#[test]
#[ignore = "testbed"]
fn a_prometheus_that_is_not_there_is_explained() {
    let _turn = turn();
    let env = TestEnv::new();
    let plan = env.run(&["plan", &existing(&env, "bob", &json!({}))]);
    let says = "bob\" cannot list resource \"prometheuses\"";
    assert!(plan.code != Some(0) && plan.stderr.contains(says), "{:?} {}", plan.code, plan.stderr);
    assert!(plan.stderr.contains("provider: {prometheus: {labels: {release: prometheus}"), "{}", plan.stderr);
    let by_hand = json!({ "prometheus": { "labels": { "release": "other" }, "namespace": "monitoring" } });
    let spec = existing(&env, "bob", &by_hand);
    env.run(&["plan", &spec]).exits(0).prints("#");
    // Rendered with them, and taken by the API server: a monitor, and a policy that lets it in.
    let to = env.root().join("rendered");
    env.run(&["render", &spec, "--to", to.to_str().unwrap()]).exits(0);
    let text = std::fs::read_to_string(to.join("cluster.yaml")).unwrap();
    assert!(text.contains("kind: PodMonitor") && text.contains("release: other"), "{text}");
    assert!(text.contains("kubernetes.io/metadata.name: monitoring"), "{text}");
    let file = to.join("cluster.yaml").display().to_string();
    let taken =
        kubectl(&["-n", "team-b", "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", &file]);
    assert!(taken.contains("podmonitor"), "{taken}");
}
