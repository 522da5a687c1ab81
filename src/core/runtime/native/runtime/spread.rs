//! Clusters that are *spread*: their hosts are several machines, on a network that their site opens to Ray.
//!
//! What the nodes of other hosts need then listens on that network; everything else stays on the loopback. Which server
//! listens where: `docs/design/0016-spread.md`.

use std::net::{IpAddr, Ipv6Addr};

use serde_json::{Value, json};

use super::LOOPBACK;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::runtime::native::NodePorts;
use crate::runtime::project::{HostInput, Others, PrepareRequest};
use crate::spec::NodeRole;

/// Whether two hosts are one machine, whose loopback they share.
fn are_near(one: &HostInput, other: &HostInput) -> bool {
    other.address == LOOPBACK && other.facts.boot_id == one.facts.boot_id
}

/// Whether Ray may use the network of this host: its site allows it, and the other hosts can reach its address.
fn is_open(host: &HostInput) -> bool {
    let is_loopback = host.address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    host.site.open_network && !host.address.is_empty() && host.address != "localhost" && !is_loopback
}

/// Whether a cluster on these hosts is spread.
pub(super) fn is_spread(hosts: &[HostInput]) -> bool {
    let Some((first, rest)) = hosts.split_first() else { return false };
    rest.iter().any(|host| !are_near(first, host)) && hosts.iter().all(is_open)
}

/// The address at which the nodes of a host listen for those of other hosts; `None` when all of Ray is on the loopback.
pub(super) fn address_of(hosts: &[HostInput], host: &Key) -> Option<String> {
    let host = hosts.iter().find(|input| input.key == *host).filter(|_| is_spread(hosts))?;
    Some(host.address.clone())
}

/// An address with a port; IPv6 is in brackets.
pub(super) fn with_port(address: &str, port: u16) -> String {
    match address.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{port}"),
        Err(_) => format!("{address}:{port}"),
    }
}

/// Rejects hosts that would need a network between them which their site does not open: without root, nothing closes
/// Ray's ports to others there.
pub(super) fn refuse_closed_network(request: &PrepareRequest<'_>) -> Result<()> {
    let own = request.host;
    if request.others == Others::None
        || request.hosts.iter().all(|other| are_near(own, other))
        || request.hosts.iter().all(is_open)
    {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, format!("prepare {} for the runtime `native`", own.key.display_name()))
        .because("its hosts are several machines, and without root nothing can close Ray's ports to others")
        .hint("use `runtime: docker`, which sets a firewall, or a single host"))
}

/// Rejects the cluster's own services in a spread cluster: they listen on the loopback of the head's host.
pub(super) fn refuse_own_services(request: &PrepareRequest<'_>) -> Result<()> {
    if !is_spread(request.hosts) {
        return Ok(());
    }
    if request.spec.own_mlflow() {
        return Err(Error::new(ErrorKind::Spec, "read `services.mlflow`")
            .because(
                "it listens on the loopback of the head's host alone, and this cluster's hosts are several machines",
            )
            .hint("use a single host, or name a server that exists: `services: {mlflow: {external: {uri: URL}}}`"));
    }
    if request.spec.own_store().is_none() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Spec, "read `services.object_store`")
        .because("it listens on the loopback of the head's host alone, and this cluster's hosts are several machines")
        .hint("leave it out and use a folder that the site's machines share: jobs can write there directly")
        .hint("or name a store that exists: `services: {object_store: {external: {endpoint: URL, …}}}`"))
}

/// The ports of a node that other hosts need, as ranges with both ends included. The rest stays on the loopback.
pub(super) fn open_ports(role: NodeRole, ports: NodePorts) -> Vec<[u16; 2]> {
    let gcs = (role == NodeRole::Head).then(|| [ports.gcs(), ports.gcs()]);
    let (first, last) = ports.workers();
    // From the raylet to the runtime environment agent: they follow each other.
    gcs.into_iter().chain([[ports.node_manager(), ports.runtime_env()], [first, last]]).collect()
}

/// What the supervisor of a host tries at the host's address, and on the loopback, to know that a node answers.
pub(super) fn answers(role: NodeRole, ports: NodePorts, address: &str) -> Value {
    let (near, far) = match role {
        NodeRole::Head => (vec![ports.dashboard, ports.client()], vec![ports.gcs(), ports.agent_http()]),
        NodeRole::Worker => (Vec::new(), vec![ports.node_manager(), ports.agent_http()]),
    };
    json!({LOOPBACK: near, address: far})
}
