//! The runtime `docker` on hosts.

use std::collections::BTreeSet;
use std::time::Duration;

use super::clean::header;
use super::images::host_images;
use super::prepare::{self, Peers};
use super::view::{SERVE, is_bridge};
use super::{clean, data, deployment, guard, ports, project};
use crate::error::Result;
use crate::host::Account;
use crate::name::{Key, Tag};
use crate::playbook::Stage;
use crate::render::quote;
use crate::runtime::project::guard::{GuardAsk, guard_script};
use crate::runtime::project::{
    ByHand, CleanOptions, DeployRequest, Deployment, Filling, HostFolders, LogRequest, Others, Page, PrepareRequest,
    ProjectRuntime, nodes_of,
};
use crate::spec::{NodeSpec, Spec};
use crate::state::HostPorts;

const INSPECT: &str = include_str!("shell/inspect.sh");
const LOGS: &str = include_str!("shell/logs.sh");
const WORKER: &str = include_str!("shell/worker.sh");

/// How long a worker that is started by hand may take to become healthy.
const START_LIMIT: Duration = Duration::from_secs(180);
/// How long one that is stopped by hand may take to end before the engine kills it.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Nodes are containers of one compose project per host.
#[derive(Debug, Clone, Copy)]
pub struct Compose;

impl ProjectRuntime for Compose {
    fn account(&self) -> Account {
        Account::Root
    }

    fn has_services(&self) -> bool {
        true
    }

    fn node_is(&self) -> &'static str {
        "container"
    }

    fn traces(&self) -> &'static str {
        "container, volume, network, rule or file"
    }

    fn folders(&self) -> &'static str {
        super::HOST_FOLDERS
    }

    fn data_in_nodes(&self) -> Option<&'static str> {
        Some(super::DATA_IN_CONTAINERS)
    }

    fn choose_ports(&self, spec: &Spec, known: HostPorts, taken: &BTreeSet<u16>) -> HostPorts {
        HostPorts::choose(spec, &known, taken)
    }

    fn ray_ports(&self, ports: &HostPorts, nodes: &[NodeSpec], is_head: bool, hosts: usize) -> Vec<(u16, u16)> {
        ports::peer_ports(ports, nodes, is_head, hosts)
    }

    fn playbooks(&self) -> &'static [&'static str] {
        &prepare::PLAYBOOKS
    }

    fn preparation(&self, request: &PrepareRequest<'_>) -> Result<Stage> {
        let PrepareRequest { spec, host, library, .. } = request;
        let (addresses, ports) = lets_in(request);
        let peers = match request.others {
            Others::None => Peers::None,
            Others::Later => Peers::Later,
            Others::Known => Peers::Known { addresses: &addresses, ports: &ports },
        };
        let images = host_images(spec, &host.facts, host.key == Key::host(0), library)?;
        prepare::preparation(spec, &host.facts, &host.tag, peers, &images.pulls, &images.builds, library)
    }

    fn filling(&self, request: &PrepareRequest<'_>) -> Result<Option<Filling>> {
        data::filling(request)
    }

    fn opens_ports(&self) -> bool {
        true
    }

    fn firewall(&self, request: &PrepareRequest<'_>) -> Result<Stage> {
        let PrepareRequest { spec, host, library, .. } = request;
        let (addresses, ports) = lets_in(request);
        prepare::firewall_stage(spec, &host.facts, &host.tag, &addresses, &ports, library)
    }

    fn deployment(&self, request: &DeployRequest<'_>, host: &Key) -> Result<Deployment> {
        deployment::deployment_of(request, host)
    }

    fn deployments(&self, request: &DeployRequest<'_>) -> Result<Vec<Deployment>> {
        deployment::deployments(request)
    }

    fn pages(&self, spec: &Spec, head_host: &Key, ports: &HostPorts) -> Vec<Page> {
        project::pages(spec, head_host, ports)
    }

    fn serve_port(&self, ports: &HostPorts) -> Option<u16> {
        Some(ports.serve).filter(|port| *port != 0)
    }

    fn serve_listens(&self, spec: &Spec, port: u16) -> (&'static str, u16) {
        match is_bridge(spec) {
            // Within the network of the containers; the engine publishes it on the host's loopback.
            true => ("0.0.0.0", SERVE),
            false => ("127.0.0.1", port),
        }
    }

    /// Works without Docker.
    fn inspect_script(&self, tag: &str, _folders: &HostFolders) -> String {
        inspect_script(tag)
    }

    fn worker_script(&self, tag: &str, _folders: &HostFolders, worker: &Tag, by_hand: ByHand) -> String {
        let limit = if by_hand == ByHand::Start { START_LIMIT } else { STOP_LIMIT };
        by_hand.script(&header(tag), &worker.to_string(), worker.key.as_str(), limit, WORKER)
    }

    fn guard_script(&self, _tag: &str, _folders: &HostFolders, guard: &Tag, ask: &GuardAsk<'_>) -> String {
        let program = format!("docker exec -i {guard} {}", guard::COMMAND.join(" "));
        guard_script("", &program, guard::HOME, ask)
    }

    fn stop_script(&self, tag: &str, _folders: &HostFolders) -> String {
        clean::stop_script(tag)
    }

    fn clean_script(&self, tag: &str, _folders: &HostFolders, options: CleanOptions) -> String {
        clean::clean_script(tag, options)
    }

    fn logs_script(&self, tag: &str, _folders: &HostFolders, request: &LogRequest) -> String {
        logs_script(tag, request)
    }
}

/// The peer addresses that may connect to a host, and the ports open to them.
fn lets_in(request: &PrepareRequest<'_>) -> (Vec<String>, Vec<String>) {
    let host = request.host;
    let others = request.hosts.iter().filter(|other| other.key != host.key);
    let here = nodes_of(request.nodes, &host.key);
    let several = if request.others == Others::None { 1 } else { 2 };
    let ports = ports::peer_ports(&host.ports, &here, host.key == Key::host(0), several)
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    (others.map(|peer| peer.address.clone()).collect(), ports.collect())
}

/// The read-only script that prints everything on the host with this tag. Works without Docker.
pub fn inspect_script(tag: &str) -> String {
    format!("{}{INSPECT}", header(tag))
}

/// The script that prints the logs of the containers of this tag.
pub fn logs_script(tag: &str, request: &LogRequest) -> String {
    let mut options = request.tail.map(|tail| format!("--tail {tail}")).unwrap_or_default();
    if request.follow {
        options.push_str(" --follow");
    }
    request.script(&format!("{}options={}\n", header(tag), quote(&options)), LOGS)
}
