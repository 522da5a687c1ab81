//! What Prometheus scrapes.

use serde_json::{Value, json};

use super::HostInput;
use super::view::Cluster;
use crate::host::StageFile;
use crate::spec::NodeRole;

/// The port of a node exporter in a bridge network.
pub(super) const EXPORTER: u16 = 9100;
/// The lists of targets, as files that Prometheus reads again when they change.
pub(super) fn files(cluster: &Cluster<'_>) -> Vec<StageFile> {
    let list = |name: &str, entries: Vec<Value>| {
        StageFile::world_readable(format!("targets/{name}.json"), format!("{}\n", Value::Array(entries)).into_bytes())
    };
    vec![list("ray", of_ray(cluster)), list("hosts", of_hosts(cluster))]
}

/// The metrics of every node, and on the head those of the autoscaler and of the dashboard.
fn of_ray(cluster: &Cluster<'_>) -> Vec<Value> {
    let mut entries = Vec::new();
    for host in cluster.request.hosts {
        for node in cluster.request.nodes.iter().filter(|node| node.host == host.key) {
            let name = if cluster.bridge { node.key.as_str() } else { &host.address };
            let own = cluster.metrics_ports(host, node);
            let own = if node.role == NodeRole::Head { &own[..] } else { &own[..1] };
            let targets: Vec<String> = own.iter().map(|port| format!("{name}:{port}")).collect();
            entries.push(json!({"targets": targets, "labels": {"gpucl_node": node.key.display_name()}}));
        }
    }
    entries
}

/// How many targets there are of Ray: one for each node, and two more for the head.
pub(super) fn count_of_ray(cluster: &Cluster<'_>) -> usize {
    cluster.request.nodes.len() + 2
}

/// The node exporter of every host.
fn of_hosts(cluster: &Cluster<'_>) -> Vec<Value> {
    let target = |host: &HostInput| {
        if cluster.bridge {
            format!("nodeexporter:{EXPORTER}")
        } else {
            format!("{}:{}", host.address, host.ports.exporter())
        }
    };
    let hosts = cluster.request.hosts.iter();
    hosts.map(|host| json!({"targets": [target(host)], "labels": {"host": host.key.display_name()}})).collect()
}
