//! `status` of a cluster on hosts, by one inspection of each host.

use super::layout::project_of;
use super::on_hosts::OnHosts;
use super::supply::earliest_end;
use crate::cluster::report::{AfterEnd, BY_HAND, ContainerReport, LastEnd, NodeReport, Phase, StatusReport};
use crate::name::Key;
use crate::plan::Observed;
use crate::playbook::Facts;
use crate::provider::HostPlace;
use crate::runtime::project::{Container, ContainerState};
use crate::state::ClusterState;

/// Completes a report by what an inspection of the hosts found; `observed` is `None` if that came to no end.
pub(super) fn with_observation(
    on: &OnHosts,
    state: &ClusterState,
    mut report: StatusReport,
    observed: Option<&Observed>,
) -> StatusReport {
    // Deleted by someone else, or ended. A standing host is not created by the provider, so it cannot be gone.
    let why_gone = |host: &Key| observed.and_then(|_| on.supply.why_gone(state, host));
    let (mut running, is_here) = (0, state.is_here());
    let (node_is, by_hand) = (on.runtime().node_is(), state.stopped_by_hand());
    report.nodes.clear();
    for node in state.started_nodes() {
        let facts = on.fleet.facts(&node.host);
        let containers = on.fleet.containers(&node.host);
        let container = containers.iter().find(|container| container.key == node.key);
        let runs = container.is_some_and(Container::is_running);
        running += usize::from(runs);
        report.nodes.push(NodeReport {
            name: node.key.display_name(),
            group: node.group().map(str::to_owned),
            host: node.host.display_name(),
            running: runs,
            stopped_by_hand: by_hand.contains(&node.key),
            // A process id means something on its own machine only.
            pid: container.filter(|_| runs && is_here).and_then(|container| container.pid),
            age_seconds: container.filter(|_| runs).and_then(age),
            ended: match (container, &facts) {
                (_, None) => Some(why_gone(&node.host).unwrap_or_else(|| "its host does not answer".to_owned())),
                (None, _) if was_stopped(state, &node.host) => Some("it was stopped".to_owned()),
                _ if !runs && by_hand.contains(&node.key) => Some(BY_HAND.to_owned()),
                (None, _) => Some(format!("its {node_is} is missing")),
                (Some(Container { exit_code: Some(code), state: ContainerState::Exited, .. }), _) => {
                    Some(format!("its {node_is} ended with exit code {code}"))
                }
                (Some(container), _) if !runs => Some(format!("its {node_is} is {}", container.state)),
                _ => None,
            },
            last_end: container
                .filter(|_| !by_hand.contains(&node.key) && !was_stopped(state, &node.host))
                .and_then(|container| last_end(container, state.ready_since)),
        });
    }
    for host in on.hosts() {
        let (name, facts) = (host.display_name(), on.fleet.facts(host));
        let Some(facts) = facts else {
            if why_gone(host).is_some() { &mut report.gone_hosts } else { &mut report.silent_hosts }.push(name);
            continue;
        };
        if restarted(state, host, &facts) {
            report.restarted = true;
            report.restarted_hosts.extend((!is_here).then(|| name.clone()));
        }
        report.containers.extend(on.fleet.containers(host).iter().map(|container| ContainerReport {
            name: container.key.display_name(),
            host: name.clone(),
            state: container.state.clone(),
            health: container.health.clone(),
            age_seconds: Some(container).filter(|container| container.is_running()).and_then(age),
        }));
    }
    let ends = observed.and_then(|observed| earliest_end(&observed.resources));
    report.ends = ends.or(report.ends);
    if observed.is_some() && report.phase != Phase::Waiting {
        report.phase = match (running, report.nodes.len()) {
            (_, 0) => report.phase,
            (0, _) => Phase::Stopped,
            (some, all) if some < all => Phase::Partly,
            _ if state.ready_since.is_some_and(|ready| on.fleet.runs_since(ready)) => Phase::Ready,
            _ => Phase::Running,
        };
        report.ready_since = state.ready_since.filter(|_| report.phase == Phase::Ready);
    }
    report
}

/// Whether the nodes of a host were ended by `stop`.
fn was_stopped(state: &ClusterState, host: &Key) -> bool {
    state.project(&project_of(host)).is_some_and(|project| project.stopped)
}

/// Reports hosts that were restarted since they were prepared: no process there survived.
pub(super) fn report_restarts(on: &OnHosts, known: &ClusterState) {
    let is_restarted = |host: &&Key| on.fleet.facts(host).is_some_and(|now| restarted(known, host, &now));
    for host in on.hosts().iter().filter(is_restarted) {
        let name = match on.fleet.place(host) {
            Some(HostPlace::Local { .. }) => "this machine".to_owned(),
            _ => host.display_name(),
        };
        on.events.note(format!("{name} was restarted since the cluster was started: none of its processes survived"));
    }
}

/// Whether the host's boot id differs from the recorded one.
fn restarted(state: &ClusterState, host: &Key, now: &Facts) -> bool {
    let before = state.host(host).and_then(|host| host.facts.as_ref());
    before.is_some_and(|before| !now.boot_id.is_empty() && before.boot_id != now.boot_id)
}

/// How a node ended by itself, unless all checks passed since it was started again.
fn last_end(node: &Container, ready: Option<jiff::Timestamp>) -> Option<LastEnd> {
    let started = node.started_at.parse::<jiff::Timestamp>().ok();
    let is_checked = matches!((started, ready), (Some(started), Some(ready)) if started <= ready);
    let then = match node.state {
        ContainerState::Running if node.restarts > 0 && !is_checked => AfterEnd::StartedAgain,
        ContainerState::Exited | ContainerState::Dead => AfterEnd::Stays,
        ContainerState::Restarting => AfterEnd::StartsAgain,
        _ => return None,
    };
    Some(LastEnd { at: node.ended_at, exit_code: node.exit_code, restarts: node.restarts, then })
}

/// The time since a container's start, in seconds.
fn age(container: &Container) -> Option<u64> {
    let started: jiff::Timestamp = container.started_at.parse().ok()?;
    Some(started.duration_until(jiff::Timestamp::now()).unsigned_abs().as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_node_is_known_until_the_cluster_was_checked_again() {
        let node = |state: ContainerState, restarts: u32, started: &str| Container {
            name: "gpucl-abcd1234-c-head".to_owned(),
            key: Key::head(),
            exit_code: (state != ContainerState::Running).then_some(137),
            state,
            health: None,
            started_at: started.to_owned(),
            pid: None,
            digest: None,
            restarts,
            ended_at: None,
        };
        let ready = Some("2026-11-21T12:00:00Z".parse().unwrap());
        let then = |node: &Container| last_end(node, ready).map(|end| (end.then, end.exit_code));
        let (before, after) = ("2026-11-21T11:00:00Z", "2026-11-21T13:00:00.5Z");
        assert_eq!(then(&node(ContainerState::Running, 0, after)), None);
        assert_eq!(then(&node(ContainerState::Running, 2, before)), None, "the checks passed since");
        assert_eq!(then(&node(ContainerState::Running, 2, after)), Some((AfterEnd::StartedAgain, None)));
        assert_eq!(then(&node(ContainerState::Exited, 0, before)), Some((AfterEnd::Stays, Some(137))));
        assert_eq!(then(&node(ContainerState::Restarting, 1, before)), Some((AfterEnd::StartsAgain, Some(137))));
        assert_eq!(then(&node(ContainerState::Created, 0, "")), None);
    }
}
