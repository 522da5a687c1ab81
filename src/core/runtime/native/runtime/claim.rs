//! The ports of a host's nodes: one block each, claimed on the host itself, so that no two clusters use the same.

use std::collections::{BTreeMap, BTreeSet};

use super::{PORTS, header};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::render::quote;
use crate::runtime::native::NodePorts;
use crate::runtime::native::ports::{BLOCK, BLOCKS, StorePorts, first_block};
use crate::runtime::project::{DeployRequest, HostFolders, HostInput, nodes_of};
use crate::spec::{NodeRole, NodeSpec};
use crate::state::HostPorts;
use crate::util::text::shortened;

const CLAIM: &str = include_str!("../shell/claim.sh");

#[cfg(test)]
mod tests;

/// The script that prints who listens on a port, as a line for [`refused`]; prints nothing when the port is free.
pub(super) fn holder_script(tag: &str, folders: &HostFolders, port: u16) -> String {
    format!("{}dashboard={port}\nblock={BLOCK}\n{PORTS}inspect_ports\nreport_taken\n", header(tag, folders))
}

/// Fails when the script found a process on the port.
pub(super) fn refused(lines: &[String]) -> Result<()> {
    match lines.iter().find_map(|line| line.strip_prefix("::taken ")) {
        Some(holder) => Err(port_is_taken(holder)),
        None => Ok(()),
    }
}

/// The script that claims a block for each node and service of this host.
pub(super) fn script(request: &DeployRequest<'_>, host: &HostInput) -> String {
    let nodes = nodes_of(request.nodes, &host.key);
    let mut wants = String::new();
    for key in keys_on(request, host) {
        let tag = request.scope.tag(&key).to_string();
        let before = host.ports.blocks.get(&key).map_or_else(|| "-".to_owned(), |base| (base / BLOCK).to_string());
        wants.push_str(&format!("{key} {tag} {before} {}\n", first_block(&tag)));
    }
    let head = nodes.iter().find(|node| node.role == NodeRole::Head);
    let dashboard = head.and_then(|head| head.dashboard_port).map(|port| port.to_string()).unwrap_or_default();
    format!(
        "{}wants={}\nfirst={}\nspan={}\nblock={BLOCK}\ndashboard={dashboard}\n{PORTS}{CLAIM}",
        header(&host.tag, &host.folders),
        quote(&wants),
        BLOCKS.start,
        BLOCKS.end - BLOCKS.start,
    )
}

/// Parses the output of [`script`].
///
/// # Errors
/// When another process listens on the dashboard's port, no block is free, or the script did not finish.
pub(super) fn claimed(request: &DeployRequest<'_>, host: &HostInput, lines: &[String]) -> Result<HostPorts> {
    let name = host.key.display_name();
    let doing = || format!("find ports for the nodes of {name}");
    let rest = |begin: &str| lines.iter().find_map(|line| line.strip_prefix(begin));
    refused(lines)?;
    if rest("::full").is_some() {
        return Err(Error::new(ErrorKind::Host, doing())
            .because(format!(
                "no {BLOCK} ports in a row are free between {} and {}",
                BLOCKS.start * BLOCK,
                BLOCKS.end * BLOCK
            ))
            .hint("`gpucl list` shows the clusters that hold ports; `gpucl down -c NAME` frees them"));
    }
    let block = |line: &String| {
        let (key, base) = line.strip_prefix("::block ")?.split_once(' ')?;
        Some((key.parse::<Key>().ok()?, base.parse::<u16>().ok()?))
    };
    let blocks: BTreeMap<Key, u16> = lines.iter().filter_map(block).collect();
    let nodes = nodes_of(request.nodes, &host.key);
    if rest("::claimed").is_none() || keys_on(request, host).iter().any(|key| !blocks.contains_key(key)) {
        let words: Vec<&str> = lines.iter().filter(|line| !line.starts_with("::")).map(String::as_str).collect();
        let why = if words.is_empty() { "its script did not finish".to_owned() } else { words.join("; ") };
        return Err(Error::new(ErrorKind::Host, doing()).because(shortened(&why)));
    }
    let head = nodes.iter().find(|node| node.role == NodeRole::Head);
    let mut ports = HostPorts { blocks, ..HostPorts::default() };
    if let Some(head) = head {
        let own = ports_of_node(&ports.blocks, head);
        (ports.ray, ports.dashboard, ports.client) = (own.base, own.dashboard, own.client());
    }
    if has_store(request, host) {
        ports.object_store = store_ports(&ports.blocks).s3();
    }
    if has_mlflow(request, host) {
        ports.mlflow = mlflow_port(&ports.blocks);
    }
    Ok(ports)
}

/// The error for a port named in the spec on which another process listens; `holder` is `PORT` or `PORT PID COMMAND`.
fn port_is_taken(holder: &str) -> Error {
    let (port, who) = holder.split_once(' ').unwrap_or((holder, ""));
    let who = match who.split_once(' ') {
        Some((pid, command)) => format!("process {pid} (`{}`) listens on it", shortened(command)),
        None => "a process that this user cannot see listens on it".to_owned(),
    };
    Error::new(ErrorKind::Host, format!("use port {port} for the dashboard (ray.head.dashboard_port)"))
        .because(who)
        .hint("end that process, name another port, or leave `dashboard_port` out: then gpucl finds a free one")
}

/// What has a block of ports on a host: its nodes and services.
fn keys_on(request: &DeployRequest<'_>, host: &HostInput) -> Vec<Key> {
    let nodes = nodes_of(request.nodes, &host.key).into_iter().map(|node| node.key);
    nodes.chain(services_on(request, host)).collect()
}

/// The services that gpucl starts for the cluster.
fn services(request: &DeployRequest<'_>) -> impl Iterator<Item = Key> {
    let store = request.spec.own_store().map(|_| Key::object_store());
    let mlflow = request.spec.own_mlflow().then(Key::mlflow);
    store.into_iter().chain(mlflow)
}

/// The services that run on this host: they are beside the head.
pub(super) fn services_on(request: &DeployRequest<'_>, host: &HostInput) -> Vec<Key> {
    let is_head = request.nodes.iter().any(|node| node.role == NodeRole::Head && node.host == host.key);
    services(request).filter(|_| is_head).collect()
}

/// Whether the cluster's own object store runs on this host.
pub(super) fn has_store(request: &DeployRequest<'_>, host: &HostInput) -> bool {
    services_on(request, host).contains(&Key::object_store())
}

/// Whether the cluster's own MLflow server runs on this host.
pub(super) fn has_mlflow(request: &DeployRequest<'_>, host: &HostInput) -> bool {
    services_on(request, host).contains(&Key::mlflow())
}

/// The ports of the object store, from these blocks.
pub(super) fn store_ports(blocks: &BTreeMap<Key, u16>) -> StorePorts {
    StorePorts { base: blocks.get(&Key::object_store()).copied().unwrap_or(BLOCKS.start * BLOCK) }
}

/// The port of MLflow, from these blocks.
pub(super) fn mlflow_port(blocks: &BTreeMap<Key, u16>) -> u16 {
    blocks.get(&Key::mlflow()).copied().unwrap_or(BLOCKS.start * BLOCK)
}

/// The ports of a node, from these blocks.
pub(super) fn ports_of_node(blocks: &BTreeMap<Key, u16>, node: &NodeSpec) -> NodePorts {
    let base = blocks.get(&node.key).copied().unwrap_or(BLOCKS.start * BLOCK);
    NodePorts { base, dashboard: node.dashboard_port.unwrap_or(base + 1) }
}

/// The blocks of all nodes and services: the claimed ones, and for the others the first to try, so that a plan can be
/// made before anything is claimed.
pub(super) fn blocks_of(request: &DeployRequest<'_>) -> BTreeMap<Key, u16> {
    let mut blocks: BTreeMap<Key, u16> = request
        .hosts
        .iter()
        .flat_map(|host| host.ports.blocks.iter().map(|(key, base)| (key.clone(), *base)))
        .collect();
    let mut taken: BTreeSet<u16> = blocks.values().copied().collect();
    for key in request.nodes.iter().map(|node| node.key.clone()).chain(services(request)) {
        if blocks.contains_key(&key) {
            continue;
        }
        let span = BLOCKS.end - BLOCKS.start;
        let from = first_block(&request.scope.tag(&key).to_string()) - BLOCKS.start;
        let bases = (0..span).map(|offset| (BLOCKS.start + (from + offset) % span) * BLOCK);
        let base = bases.clone().find(|base| !taken.contains(base)).unwrap_or(BLOCKS.start * BLOCK);
        taken.insert(base);
        blocks.insert(key, base);
    }
    blocks
}
