//! How a node is started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Layout, NodePorts};
use crate::name::{Key, Scope};
use crate::ray::NAME_LABEL;
use crate::spec::{NodeRole, NodeSpec};

/// One process for its host's supervisor to start and supervise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The format version.
    pub v: u32,
    /// The node.
    pub key: Key,
    /// Head or worker.
    pub role: NodeRole,
    /// The node's tag.
    pub tag: String,
    /// The digest of the start parameters.
    pub digest: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The environment, in addition to what the supervisor passes on from its own.
    pub environment: BTreeMap<String, String>,
    /// The working folder.
    pub folder: PathBuf,
    /// The file for its output.
    pub log: PathBuf,
}

/// Where the servers of a node listen, and where it finds its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Its ports.
    pub ports: NodePorts,
    /// The address or name at which its host is reached by the cluster's other hosts; `None` when the whole cluster is
    /// on the loopback of one machine.
    pub address: Option<String>,
    /// Address and port of the head's GCS.
    pub gcs: String,
}

/// The address that all of Ray listens on, unless the cluster's hosts are several machines.
const LOOPBACK: &str = "127.0.0.1";

/// Builds the launch of a node; `gpus` are the UUIDs of its GPUs.
pub fn launch(
    scope: &Scope,
    node: &NodeSpec,
    layout: &Layout,
    ray_env: &Path,
    network: &Network,
    gpus: &[String],
) -> Launch {
    let ports = network.ports;
    let python = ray_env.join("bin/python").display().to_string();
    let mut argv = vec![python.clone(), "-I".to_owned(), "-B".to_owned(), layout.reaper_script().display().to_string()];
    argv.extend(["run".to_owned(), layout.home().display().to_string(), node.key.to_string()]);
    argv.extend([python, layout.node_script().display().to_string(), "start".to_owned()]);
    let mut flag = |name: &str, value: String| argv.extend([format!("--{name}"), value]);
    match node.role {
        NodeRole::Head => {
            flag("port", ports.gcs().to_string());
            flag("dashboard-host", LOOPBACK.to_owned());
            flag("dashboard-port", ports.dashboard.to_string());
            flag("ray-client-server-port", ports.client().to_string());
        }
        NodeRole::Worker => flag("address", network.gcs.clone()),
    }
    let (first, last) = ports.workers();
    let mut resources = node.resources.clone();
    // This resource identifies the node, so that a task can be sent to it.
    resources.insert(resource_of(&node.key), 1.0);
    let mut labels = node.labels.clone();
    labels.insert(NAME_LABEL.to_owned(), node.key.display_name());
    for (name, value) in [
        ("node-ip-address", network.address.clone().unwrap_or_else(|| LOOPBACK.to_owned())),
        ("node-manager-port", ports.node_manager().to_string()),
        ("object-manager-port", ports.object_manager().to_string()),
        ("metrics-export-port", ports.metrics().to_string()),
        ("dashboard-agent-listen-port", ports.agent_http().to_string()),
        ("dashboard-agent-grpc-port", ports.agent_grpc().to_string()),
        ("runtime-env-agent-port", ports.runtime_env().to_string()),
        ("min-worker-port", first.to_string()),
        ("max-worker-port", last.to_string()),
        ("num-cpus", node.cpus.to_string()),
        ("num-gpus", node.gpus.to_string()),
        ("memory", node.memory.to_string()),
        ("object-store-memory", node.object_store_memory.to_string()),
        ("resources", serde_json::to_string(&resources).unwrap_or_default()),
        ("labels", labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")),
        ("temp-dir", layout.temp_dir(&node.key).display().to_string()),
    ] {
        flag(name, value);
    }
    if node.role == NodeRole::Head {
        argv.push("--head".to_owned());
    }
    argv.extend(["--block".to_owned(), "--disable-usage-stats".to_owned()]);

    let mut environment = node.environment.clone();
    let path =
        format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", ray_env.join("bin").display());
    for (name, value) in [
        ("GPUCL_TAG", scope.tag(&node.key).to_string()),
        ("GPUCL_DIGEST", node.digest()),
        ("GPUCL_DATA", layout.data().display().to_string()),
        ("RAY_AUTH_MODE", "token".to_owned()),
        ("RAY_AUTH_TOKEN_PATH", layout.token().display().to_string()),
        // Ray's own option to stay on the loopback; see the launcher, `node.py`.
        ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", u8::from(network.address.is_some()).to_string()),
        ("RAY_USAGE_STATS_ENABLED", "0".to_owned()),
        ("AUTOSCALER_METRIC_PORT", ports.autoscaler_metrics().to_string()),
        ("DASHBOARD_METRIC_PORT", ports.dashboard_metrics().to_string()),
        ("TMPDIR", layout.tmp().display().to_string()),
        ("PYTHONUNBUFFERED", "1".to_owned()),
        // Ray writes titles such as `ray::IDLE` over its processes' command line, and a long one would overwrite the
        // environment, which holds our tag. This limits titles to the command line.
        ("SPT_NOENV", "1".to_owned()),
        ("VIRTUAL_ENV", ray_env.display().to_string()),
        ("PATH", path),
    ] {
        environment.insert(name.to_owned(), value);
    }
    if !gpus.is_empty() {
        environment.insert("CUDA_VISIBLE_DEVICES".to_owned(), gpus.join(","));
    } else if node.first_gpu.is_none() && node.gpus == 0 {
        environment.insert("CUDA_VISIBLE_DEVICES".to_owned(), String::new());
    }
    Launch {
        v: 1,
        key: node.key.clone(),
        role: node.role,
        tag: scope.tag(&node.key).to_string(),
        digest: node.digest(),
        argv,
        environment,
        folder: layout.home().to_owned(),
        log: layout.log(&node.key),
    }
}

/// What Ray must show of a node, for the check that compares the two.
pub(crate) fn promise_of(node: &NodeSpec) -> serde_json::Value {
    serde_json::json!({
        "target": node.key.display_name(),
        "resource": resource_of(&node.key),
        "CPU": node.cpus,
        "GPU": node.gpus,
        "memory": node.memory,
        "object_store_memory": node.object_store_memory,
        "resources": node.resources,
        "labels": node.labels,
    })
}

/// The custom Ray resource that identifies a node.
pub(crate) fn resource_of(key: &Key) -> String {
    format!("gpucl_{key}")
}
