//! What answers from outside: of our ports none may, at the address that hosts are reached by.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;

use super::world::ProjectWorld;
use crate::event::CheckOutcome;
use crate::name::Key;
use crate::provider::HostPlace;
use crate::runtime::compose::{self, HostPorts};
use crate::state::ClusterState;

/// How long a port may take to answer; a firewall that drops says nothing at all.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// What was seen of one host from here: how it ended, and in words.
pub(super) struct FromOutside {
    /// The host.
    pub(super) host: Key,
    /// Whether none of ours answers.
    pub(super) outcome: CheckOutcome,
    /// In words.
    pub(super) saw: String,
}

/// Tries all ports of ours on all hosts at once.
pub(super) async fn run(world: &ProjectWorld, known: &ClusterState) -> Vec<FromOutside> {
    let hosts = world.host_keys();
    join_all(hosts.iter().map(|host| one(world, known, host))).await
}

async fn one(world: &ProjectWorld, known: &ClusterState, host: &Key) -> FromOutside {
    let mut ports: BTreeSet<u16> =
        known.note::<HostPorts>(host, "ports").map(|ports| ports.all().into_iter().collect()).unwrap_or_default();
    if let Some(own) = known.note::<HostPorts>(host, "ports") {
        let nodes = crate::plan::started_nodes(known);
        let here: Vec<_> = nodes.into_iter().filter(|node| node.host == *host).collect();
        let ranges = compose::peer_ports(own, &here, *host == Key::host(0), world.host_keys().len());
        // Of a long range the beginning is enough: that is where servers are.
        ports.extend(ranges.into_iter().flat_map(|(first, last)| first..=last.min(first.saturating_add(32))));
    }
    let Some(HostPlace::Ssh { target }) = world.place_of(host) else {
        return FromOutside { host: host.clone(), outcome: CheckOutcome::Noted, saw: "it is this machine".to_owned() };
    };
    let node = target.node.as_str();
    let answers = join_all(ports.iter().map(async |port| {
        let connect = tokio::net::TcpStream::connect((node, *port));
        matches!(tokio::time::timeout(ANSWERS_WITHIN, connect).await, Ok(Ok(_))).then_some(*port)
    }))
    .await;
    let open: Vec<String> = answers.into_iter().flatten().map(|port| port.to_string()).collect();
    let (outcome, saw) = if open.is_empty() {
        (CheckOutcome::Passed, format!("none of our {} ports answers at {node}", ports.len()))
    } else {
        (CheckOutcome::Failed, format!("these of our ports answer at {node}: {}", open.join(", ")))
    };
    FromOutside { host: host.clone(), outcome, saw }
}
