//! The check from outside: none of our ports may answer at the address that hosts are reached by.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;

use super::fleet::Fleet;
use crate::event::CheckOutcome;
use crate::name::Key;
use crate::playbook::Facts;
use crate::provider::HostPlace;
use crate::runtime::project::ProjectRuntime;
use crate::state::ClusterState;
use crate::util::human;

/// Timeout for a port; a firewall that drops packets never answers.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Timeout for a name.
const RESOLVES_WITHIN: Duration = Duration::from_secs(5);
/// How many ports of other programs are tried; they are only reported.
const MOST_OF_OTHERS: usize = 64;

/// The result of the check for one host.
pub(super) struct FromOutside {
    pub(super) host: Key,
    /// Passed if none of our ports answers; noted if only those do that a site's open network is meant to show.
    pub(super) outcome: CheckOutcome,
    /// The result as text.
    pub(super) saw: String,
}

/// Tries all our ports on all hosts concurrently.
pub(super) async fn run(fleet: &Fleet, runtime: &dyn ProjectRuntime, known: &ClusterState) -> Vec<FromOutside> {
    let hosts = fleet.hosts();
    // This machine cannot check itself from outside.
    let there = hosts.iter().filter(|host| !matches!(fleet.place(host), Some(HostPlace::Local { .. })));
    join_all(there.map(|host| one(fleet, runtime, known, host))).await
}

async fn one(fleet: &Fleet, runtime: &dyn ProjectRuntime, known: &ClusterState, host: &Key) -> FromOutside {
    let own = known.host(host).and_then(|host| host.ports.as_ref());
    let mut ports: BTreeSet<u16> = own.map(|ports| ports.all().into_iter().collect()).unwrap_or_default();
    let mut needed = Vec::new();
    if let Some(own) = own {
        let nodes = known.started_nodes();
        let here: Vec<_> = nodes.into_iter().filter(|node| node.host == *host).collect();
        let ranges = runtime.ray_ports(own, &here, *host == Key::host(0), fleet.hosts().len());
        // Of a long range, its beginning, where servers listen, and the listening ports are enough.
        let listening = fleet.facts(host).map(|facts| facts.listening).unwrap_or_default();
        for (first, last) in ranges {
            ports.extend(first..=last.min(first.saturating_add(32)));
            ports.extend(listening.iter().map(std::net::SocketAddr::port).filter(|port| (first..=last).contains(port)));
        }
        if fleet.hosts().len() > 1 && fleet.site(host).open_network {
            needed = runtime.ports_on_open_network(own, &here);
        }
    }
    let noted = |saw: String| FromOutside { host: host.clone(), outcome: CheckOutcome::Noted, saw };
    let target = match fleet.place(host) {
        Some(HostPlace::Ssh { target, .. }) => target,
        Some(HostPlace::Local { .. }) => return noted("it is this machine".to_owned()),
        None => return noted("it is not known where it is".to_owned()),
    };
    let node = target.node.as_str();
    if is_loopback(node) {
        // A connection from here would come from inside.
        return noted(format!("{node} is a loopback address, which cannot be reached from outside"));
    }
    if target.relay.is_some() && !has_address(node).await {
        return noted(format!("not tried: this machine reaches {node} through another, and knows no address of it"));
    }
    let open = answering(node, &ports).await;
    let (outcome, mut saw) = judge(node, ports.len(), &open, &needed);
    if outcome == CheckOutcome::Failed {
        return FromOutside { host: host.clone(), outcome, saw };
    }
    let others = others(fleet.facts(host).as_ref(), &ports, target.port.unwrap_or(22));
    let others = answering(node, &others).await;
    if !others.is_empty() {
        saw = format!("{saw}; ports of other programs do, and are left alone: {}", listed(&others));
    }
    FromOutside { host: host.clone(), outcome, saw }
}

/// Decides from the ports that answer at a node, of `tried` ones. Those that the cluster's hosts need of each other on
/// a network that their site opens, in these ranges, are only reported.
fn judge(node: &str, tried: usize, open: &[u16], needed: &[(u16, u16)]) -> (CheckOutcome, String) {
    let is_needed = |port: &u16| needed.iter().any(|(first, last)| (first..=last).contains(&port));
    let (of_site, wrong): (Vec<u16>, Vec<u16>) = open.iter().copied().partition(is_needed);
    if !wrong.is_empty() {
        return (CheckOutcome::Failed, format!("these of our ports answer at {node}: {}", listed(&wrong)));
    }
    if of_site.is_empty() {
        return (CheckOutcome::Passed, format!("none of our {tried} ports answers at {node}"));
    }
    let saw = format!(
        "the site's network lets this machine connect to {} of Ray at {node} ({}), which want the cluster's token; \
         none of our other ports answers, the dashboard's included",
        human::count(of_site.len(), "port"),
        listed(&of_site)
    );
    (CheckOutcome::Noted, saw)
}

fn listed(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether this machine knows an address of a name.
async fn has_address(node: &str) -> bool {
    let looked_up = tokio::time::timeout(RESOLVES_WITHIN, tokio::net::lookup_host((node, 22))).await;
    looked_up.is_ok_and(|found| found.is_ok_and(|mut found| found.next().is_some()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_an_open_network_only_what_other_hosts_need_may_answer() {
        let needed = [(20000, 20000), (20004, 20008)];
        let outcome = |open: &[u16], needed: &[(u16, u16)]| judge("n1", 40, open, needed);
        assert_eq!(outcome(&[], &needed), (CheckOutcome::Passed, "none of our 40 ports answers at n1".to_owned()));
        let (noted, saw) = outcome(&[20000, 20004], &needed);
        assert_eq!(noted, CheckOutcome::Noted);
        assert!(saw.contains("2 ports of Ray at n1 (20000, 20004)"), "{saw}");
        // The dashboard and the metrics, and anything where no network was opened.
        for (open, needed) in [([20000, 20001], &needed[..]), ([20003, 20004], &needed), ([20000, 20004], &[])] {
            let (failed, saw) = outcome(&open, needed);
            assert_eq!(failed, CheckOutcome::Failed, "{saw}");
        }
    }

    #[tokio::test]
    async fn a_name_of_another_network_has_no_address_here() {
        assert!(!has_address("n1.gpucl.invalid").await);
        assert!(has_address("192.0.2.7").await);
    }
}
