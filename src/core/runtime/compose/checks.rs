//! The shell code of a host's checks: everything it runs is checked from inside, in parallel.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::clean::header;
use super::view::{Cluster, gpus_of};
use super::{HostInput, targets};
use crate::error::Result;
use crate::name::{Key, Scope};
use crate::playbook::Vendor;
use crate::render::quote;
use crate::runtime::native::{promise_of, resource_of};
use crate::runtime::project::mlflow;
use crate::spec::{NodeRole, NodeSpec};

const CHECKS: &str = include_str!("shell/checks.sh");
/// How long a GPU check may take, in seconds: the first use of a driver is slow.
const GPU_LIMIT: u32 = 60;
/// How long a client may take to join and run its tasks, in seconds.
const CLIENT_LIMIT: u32 = 90;
/// How long it may take while other containers start, in seconds: one that needs longer runs again after them.
const EARLY_CLIENT_LIMIT: u32 = 60;
/// How long the head's checks together may take, in seconds.
const CLUSTER_LIMIT: u32 = 100;

/// The checks of one host; `image` is its nodes' image.
pub(super) fn checks(cluster: &Cluster<'_>, host: &HostInput, image: &str) -> Result<String> {
    let scope = cluster.request.scope;
    let mut text = header(&host.tag);
    text.push_str(CHECKS);
    let name = host.key.display_name();
    let mut in_container =
        |run: &str, check: &str, target: &str, limit: u32, key: &Key, command: &str, want: &Value| {
            let _ = writeln!(text, "{} &", in_container(scope, run, check, target, limit, key, command, want));
        };
    let nodes: Vec<&NodeSpec> = cluster.request.nodes.iter().filter(|node| node.host == host.key).collect();
    let (mut promised, mut vendor) = (0, Vendor::Nvidia);
    for node in &nodes {
        let gpus = gpus_of(host, node)?;
        let Some(first) = gpus.first() else { continue };
        promised += gpus.len();
        vendor = first.vendor;
        let ids: Vec<&str> = gpus
            .iter()
            .filter_map(|gpu| if gpu.vendor == Vendor::Amd { Some(gpu.pci.as_str()) } else { gpu.uuid.as_deref() })
            .collect();
        let target = node.key.display_name();
        let want = json!({"target": target, "vendor": vendor, "count": gpus.len(), "ids": ids, "host": name});
        in_container("in_container", "gpu", &target, GPU_LIMIT, &node.key, "gpu", &want);
    }
    if nodes.iter().any(|node| node.role == NodeRole::Head) {
        let want = of_cluster(cluster);
        in_container("in_container", "cluster", "head", CLUSTER_LIMIT, &Key::head(), "cluster", &want);
        let (from, want) = of_client(cluster, host, CLIENT_LIMIT);
        in_container(
            &client_run(cluster, &nodes, &from),
            "client",
            &from.display_name(),
            CLIENT_LIMIT,
            &from,
            "client",
            &want,
        );
    }
    if nodes.iter().any(|node| node.role == NodeRole::Head)
        && let Some((want, secrets)) = of_services(cluster)
    {
        let _ = writeln!(
            text,
            "apart services head {} {} {} '{}' python3 -I /opt/gpucl/probe.py services {} </dev/null &",
            CLUSTER_LIMIT + 10,
            if cluster.bridge { quote(&format!("{}_default", host.tag)) } else { "host".to_owned() },
            quote(image),
            secrets.join(" "),
            quote(&want.to_string())
        );
    }
    let _ = writeln!(text, "closed_host {} &", quote(&name));
    if promised > 0 {
        let vendor = if vendor == Vendor::Amd { "amd" } else { "nvidia" };
        let _ = writeln!(text, "host_gpus {} {promised} {vendor} &", quote(&name));
    }
    let on_loopback = on_loopback(cluster, host, &nodes);
    if !on_loopback.is_empty() {
        let ports: Vec<String> = on_loopback.iter().map(u16::to_string).collect();
        let _ = writeln!(text, "closed_ports {} {} &", quote(&name), ports.join(" "));
    }
    text.push_str("wait\nrm -rf \"$dir\"\n");
    Ok(text)
}

/// The ports of a host on which only its loopback may listen. Of several hosts, what the others need is not among them:
/// the firewall closes that to everybody else.
fn on_loopback(cluster: &Cluster<'_>, host: &HostInput, nodes: &[&NodeSpec]) -> Vec<u16> {
    let ports = &host.ports;
    match (cluster.bridge, nodes.iter().any(|node| node.role == NodeRole::Head)) {
        (true, _) => ports.all(),
        (false, true) => {
            vec![ports.dashboard, ports.console, ports.prometheus, ports.grafana, ports.jupyter, ports.serve]
        }
        (false, false) => Vec::new(),
    }
}

/// The program that runs the client's check alone while containers start, for [`checks`] to show its result again: most
/// of its time it waits for processes that it has started, as the containers do. `None` where that would not be shown.
pub(super) fn early_client(cluster: &Cluster<'_>, host: &HostInput) -> Option<String> {
    let nodes: Vec<&NodeSpec> = cluster.request.nodes.iter().filter(|node| node.host == host.key).collect();
    if !cluster.bridge || !nodes.iter().any(|node| node.role == NodeRole::Head) {
        return None;
    }
    let (from, want) = of_client(cluster, host, EARLY_CLIENT_LIMIT);
    let (run, name) = (client_run(cluster, &nodes, &from), from.display_name());
    let line = in_container(cluster.request.scope, &run, "client", &name, EARLY_CLIENT_LIMIT, &from, "client", &want);
    Some(format!("{}{CHECKS}{line}\nrm -rf \"$dir\"\n", header(&host.tag)))
}

/// One line: the check of a container by the probe in it.
#[expect(clippy::too_many_arguments, reason = "they are the words of a command line")]
fn in_container(
    scope: &Scope,
    run: &str,
    check: &str,
    target: &str,
    limit: u32,
    key: &Key,
    command: &str,
    want: &Value,
) -> String {
    let words = [check, target].map(quote).join(" ");
    let container = quote(&scope.tag(key).to_string());
    let isolated = if command == "client" { "" } else { "-I " };
    format!(
        "{run} {words} {} {container} python3 {isolated}/opt/gpucl/probe.py {command} {} </dev/null",
        limit + 10,
        quote(&want.to_string()),
    )
}

/// Where the client runs, and what it is asked; `limit` is its time, in seconds.
fn of_client(cluster: &Cluster<'_>, host: &HostInput, limit: u32) -> (Key, Value) {
    let has_jupyter = cluster.request.spec.services().jupyter.settings().is_some();
    let from = if has_jupyter { Key::service("jupyter") } else { Key::head() };
    let want = json!({
        "target": from.display_name(),
        "address": client_address(cluster, host),
        "workers": workers(cluster),
        "timeout_s": limit,
    });
    (from, want)
}

/// How the client's check is run: with the containers that its result depends on.
fn client_run(cluster: &Cluster<'_>, nodes: &[&NodeSpec], from: &Key) -> String {
    // Of nodes on other hosts, this one does not see whether they were restarted.
    if !cluster.bridge {
        return "in_container".to_owned();
    }
    let of = nodes.iter().map(|node| &node.key).chain([from]).map(|key| cluster.request.scope.tag(key).to_string());
    format!("client {}", quote(&of.collect::<Vec<_>>().join(" ")))
}

/// Ray's client server, as the head's own container reaches it.
fn client_address(cluster: &Cluster<'_>, host: &HostInput) -> String {
    format!("ray://127.0.0.1:{}", if cluster.bridge { 10_001 } else { host.ports.client })
}

fn workers(cluster: &Cluster<'_>) -> Vec<Value> {
    let workers = cluster.request.nodes.iter().filter(|node| node.role == NodeRole::Worker);
    workers.map(|node| json!({"target": node.key.display_name(), "resource": resource_of(&node.key)})).collect()
}

/// What the head checks.
fn of_cluster(cluster: &Cluster<'_>) -> Value {
    let at = &cluster.at;
    let mut want = json!({
        "dashboard": at.dashboard,
        "nodes": cluster.request.nodes.iter().map(promise_of).collect::<Vec<Value>>(),
        "timeout_s": CLUSTER_LIMIT,
        "patience_s": 40,
    });
    if let Some(store) = store(cluster) {
        want["store"] = store;
    }
    if let Some(mlflow) = mlflow::want(cluster.request.spec, &at.mlflow) {
        want["mlflow"] = mlflow;
    }
    want
}

/// The checks that need passwords, and the files with these; no container that runs jobs gets them.
fn of_services(cluster: &Cluster<'_>) -> Option<(Value, Vec<&'static str>)> {
    let at = &cluster.at;
    let mut want = json!({"timeout_s": CLUSTER_LIMIT, "patience_s": 40});
    let mut secrets = Vec::new();
    if cluster.has_prometheus {
        want["prometheus"] = json!(at.prometheus);
        want["ray_targets"] = json!(targets::count_of_ray(cluster));
        secrets.push("prometheus_headers");
    }
    if cluster.has_grafana {
        want["grafana"] = json!(at.grafana);
        secrets.push("grafana_password");
    }
    if cluster.request.spec.services().jupyter.settings().is_some() {
        want["jupyter"] = json!(at.jupyter);
        secrets.push("jupyter_token");
    }
    (!secrets.is_empty()).then_some((want, secrets))
}

/// The object store, as input to the probe.
pub(super) fn store(cluster: &Cluster<'_>) -> Option<Value> {
    let store = cluster.store.as_ref()?;
    let region = store.external.as_ref().map_or("us-east-1", |external| &external.region);
    Some(json!({
        "endpoint": cluster.at.store,
        "region": region,
        "buckets": store.buckets,
        "make": store.external.is_none(),
    }))
}
