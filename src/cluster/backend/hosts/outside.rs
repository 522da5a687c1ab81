//! The check from outside: none of our ports may answer at the address that hosts are reached by.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;

use super::world::ProjectWorld;
use crate::event::CheckOutcome;
use crate::name::Key;
use crate::playbook::Facts;
use crate::provider::HostPlace;
use crate::state::ClusterState;

/// Timeout for a port; a firewall that drops packets never answers.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// How many ports of other programs are tried; they are only reported.
const MOST_OF_OTHERS: usize = 64;

/// The result of the check for one host.
pub(super) struct FromOutside {
    pub(super) host: Key,
    /// Passed if none of our ports answers.
    pub(super) outcome: CheckOutcome,
    /// The result as text.
    pub(super) saw: String,
}

/// Tries all our ports on all hosts concurrently.
pub(super) async fn run(world: &ProjectWorld, known: &ClusterState) -> Vec<FromOutside> {
    let hosts = world.host_keys();
    // This machine cannot check itself from outside.
    let there = hosts.iter().filter(|host| !matches!(world.place_of(host), Some(HostPlace::Local { .. })));
    join_all(there.map(|host| one(world, known, host))).await
}

async fn one(world: &ProjectWorld, known: &ClusterState, host: &Key) -> FromOutside {
    let own = known.host(host).and_then(|host| host.ports.as_ref());
    let mut ports: BTreeSet<u16> = own.map(|ports| ports.all().into_iter().collect()).unwrap_or_default();
    if let Some(own) = own {
        let nodes = known.started_nodes();
        let here: Vec<_> = nodes.into_iter().filter(|node| node.host == *host).collect();
        let ranges = world.runtime().ray_ports(own, &here, *host == Key::host(0), world.host_keys().len());
        // Of a long range, its beginning, where servers listen, and the listening ports are enough.
        let listening = world.observed_facts(host).map(|facts| facts.listening).unwrap_or_default();
        for (first, last) in ranges {
            ports.extend(first..=last.min(first.saturating_add(32)));
            ports.extend(listening.iter().map(std::net::SocketAddr::port).filter(|port| (first..=last).contains(port)));
        }
    }
    let target = match world.place_of(host) {
        Some(HostPlace::Ssh { target, .. }) => target,
        Some(HostPlace::Local { .. }) => {
            return FromOutside {
                host: host.clone(),
                outcome: CheckOutcome::Noted,
                saw: "it is this machine".to_owned(),
            };
        }
        None => {
            let saw = "it is not known where it is".to_owned();
            return FromOutside { host: host.clone(), outcome: CheckOutcome::Noted, saw };
        }
    };
    let node = target.node.as_str();
    if is_loopback(node) {
        // A connection from here would come from inside.
        let saw = format!("{node} is a loopback address, which cannot be reached from outside");
        return FromOutside { host: host.clone(), outcome: CheckOutcome::Noted, saw };
    }
    let open: Vec<String> = answering(node, &ports).await.iter().map(u16::to_string).collect();
    if !open.is_empty() {
        let saw = format!("these of our ports answer at {node}: {}", open.join(", "));
        return FromOutside { host: host.clone(), outcome: CheckOutcome::Failed, saw };
    }
    let mut saw = format!("none of our {} ports answers at {node}", ports.len());
    let others = others(world.observed_facts(host).as_ref(), &ports, target.port.unwrap_or(22));
    let others: Vec<String> = answering(node, &others).await.iter().map(u16::to_string).collect();
    if !others.is_empty() {
        saw = format!("{saw}; ports of other programs do, and are left alone: {}", others.join(", "));
    }
    FromOutside { host: host.clone(), outcome: CheckOutcome::Passed, saw }
}

/// Whether a name or address means this machine.
fn is_loopback(node: &str) -> bool {
    node == "localhost" || node.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The ports that listen beyond the loopback interface and are neither ours nor SSH's.
fn others(facts: Option<&Facts>, ours: &BTreeSet<u16>, ssh: u16) -> BTreeSet<u16> {
    let listening = facts.into_iter().flat_map(|facts| &facts.listening);
    let open = listening.filter(|address| !address.ip().is_loopback()).map(std::net::SocketAddr::port);
    open.filter(|port| !ours.contains(port) && *port != ssh).take(MOST_OF_OTHERS).collect()
}

/// The ports that accept a connection from this machine.
async fn answering(node: &str, ports: &BTreeSet<u16>) -> Vec<u16> {
    let answers = join_all(ports.iter().map(async |port| {
        let connect = tokio::net::TcpStream::connect((node, *port));
        matches!(tokio::time::timeout(ANSWERS_WITHIN, connect).await, Ok(Ok(_))).then_some(*port)
    }))
    .await;
    answers.into_iter().flatten().collect()
}
