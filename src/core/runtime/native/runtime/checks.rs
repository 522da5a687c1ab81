//! The checks of a host's nodes, as one shell script.

use serde_json::{Value, json};

use super::claim::{blocks_of, ports_of_node, services_on};
use super::source::Source;
use super::stage::{gcs, gpus_of};
use super::{LOOPBACK, header, mlflow, spread, store};
use crate::error::Result;
use crate::name::Key;
use crate::render::quote;
use crate::runtime::native::{promise_of, resource_of};
use crate::runtime::project::guard::key_on;
use crate::runtime::project::{DeployRequest, HostInput};
use crate::spec::{NodeRole, NodeSpec};

const CHECKS: &str = include_str!("../shell/checks.sh");

/// How long a check of the cluster from inside may take, in seconds.
const CHECK_LIMIT: u32 = 100;

/// The shell code of a host's checks.
pub(super) fn checks(request: &DeployRequest<'_>, host: &HostInput, nodes: &[NodeSpec]) -> Result<String> {
    let name = host.key.display_name();
    let (own, guard) = (services_on(request, host), key_on(request, host));
    let keys: Vec<&str> = nodes.iter().map(|node| &node.key).chain(&own).chain(&guard).map(Key::as_str).collect();
    let blocks = blocks_of(request);
    let modules = Source::of(request.spec, &host.site).environment();
    // Packages that modules bring are found by variables, which isolated programs do not read.
    let by_python = if modules.is_empty() { CHECKS.to_owned() } else { CHECKS.replace(" -I -B ", " -B ") };
    let header = header(&host.tag, &host.folders);
    let mut text = format!("{header}{modules}keys={}\n{by_python}", quote(&keys.join(" ")));
    let reached_at = |host: &Key| spread::address_of(request.hosts, host).unwrap_or_else(|| LOOPBACK.to_owned());
    if spread::is_spread(request.hosts) {
        // As the nodes have it: with 0, Ray would take the loopback for every node's address.
        text.push_str("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=1\n");
    }
    let mut run = |check: &str, target: &str, program: &str, arguments: &[String]| {
        let words: Vec<String> = arguments.iter().map(|word| quote(word)).collect();
        text.push_str(&format!(
            "by_python {} {} {} \"$home/{program}\" {} &\n",
            quote(check),
            quote(target),
            CHECK_LIMIT + 10,
            words.join(" ")
        ));
    };
    if nodes.iter().any(|node| node.role == NodeRole::Head) {
        let agent = |node: &NodeSpec| {
            let at = spread::with_port(&reached_at(&node.host), ports_of_node(&blocks, node).agent_http());
            json!({"target": node.key.display_name(), "url": format!("http://{at}/api/jobs/")})
        };
        let head = nodes.iter().find(|node| node.role == NodeRole::Head).map(|head| ports_of_node(&blocks, head));
        let head = head.unwrap_or_default();
        let mut want = json!({
            "dashboard": format!("http://{LOOPBACK}:{}", head.dashboard),
            "agents": request.nodes.iter().map(agent).collect::<Vec<Value>>(),
            "nodes": request.nodes.iter().map(promise_of).collect::<Vec<Value>>(),
            "timeout_s": CHECK_LIMIT,
            "patience_s": 40,
        });
        if let Some(store) = store::want(request, &blocks) {
            want["store"] = store;
        }
        if let Some(mlflow) = mlflow::want(request, &blocks) {
            want["mlflow"] = mlflow;
        }
        run("cluster", "head", "cluster.py", &["cluster".to_owned(), want.to_string()]);
        let mut workers = Vec::new();
        for worker in request.nodes.iter().filter(|node| node.role == NodeRole::Worker) {
            let on = request.hosts.iter().find(|input| input.key == worker.host);
            let ids = on.map_or_else(|| Ok(Vec::new()), |on| gpus_of(on, worker))?;
            workers.push(json!({
                "key": worker.key.display_name(),
                "node_resource": resource_of(&worker.key),
                "gpus": worker.gpus,
                "gpu_mode": if worker.first_gpu.is_some() { "proven" } else { "declared" },
                "ids": ids,
            }));
        }
        let want = json!({
            "address": gcs(request, &blocks),
            "workers": workers,
            "grpc_ports": [head.gcs()],
            "timeout_s": CHECK_LIMIT,
            "lines": "check",
        });
        run("task ran", "head", "probe.py", &[want.to_string()]);
    }
    text.push_str(&format!(
        "by_python 'closed ports' {} 30 \"$home/host.py\" closed \"$home\" {} &\n",
        quote(&name),
        quote(&name)
    ));
    text.push_str("wait\nrm -rf \"$dir\"\n");
    Ok(text)
}
