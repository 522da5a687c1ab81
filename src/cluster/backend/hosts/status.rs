//! `status` of a cluster on hosts: from the state, and by one inspection of each host.

use std::path::Path;
use std::time::Duration;

use super::acquire::end_of;
use super::expected::{LOOPBACK, project_of};
use super::open::open_world;
use super::world::{ProjectWorld, Purpose};
use crate::cluster::{AfterEnd, ContainerReport, LastEnd, NodeReport, Settings, StatusReport, data_here};
use crate::engine::World as _;
use crate::error::Result;
use crate::name::Key;
use crate::plan::Observed;
use crate::playbook::Facts;
use crate::provider::HostPlace;
use crate::ray::Access;
use crate::runtime::project::{Container, ContainerState};
use crate::spec::{NodeSpec, Spec};
use crate::state::{ClusterState, HostNotes, Store};

/// Timeout of the inspection of all hosts.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a worker that was stopped by hand does not run.
pub(super) const BY_HAND: &str = "it was stopped by hand";

/// Completes a report from the state alone.
pub(super) fn known(state: &ClusterState, mut report: StatusReport) -> StatusReport {
    let mut projects = state.projects().map(|(_, project)| project).peekable();
    let has_projects = projects.peek().is_some();
    report.nodes = state.started_nodes().iter().map(|node| unseen(state, node)).collect();
    report.phase = if has_projects && projects.all(|project| project.stopped) {
        "stopped"
    } else if state.ready_since.is_some() {
        "ready"
    } else if !has_projects && state.items.is_empty() {
        "stopped"
    } else {
        "unfinished"
    };
    report.ready_since = state.ready_since.filter(|_| report.phase == "ready");
    report
}

/// The addresses of a running cluster; for remote hosts, those that `gpucl dashboard` forwards. `None` if none runs.
pub(super) fn access_of(state: &ClusterState, folder: &Path) -> Option<Access> {
    let project = state.project(&Key::project(0)).filter(|project| !project.stopped)?;
    let pages = project.pages.as_ref()?;
    if state.is_here() {
        let HostNotes { ports, ray_env, .. } = state.host(&Key::host(0))?;
        let data = data_here(state, "head").ok();
        let ports = ports.as_ref()?;
        return Some(Access {
            dashboard_url: format!("http://{LOOPBACK}:{}", ports.dashboard),
            gcs_address: format!("{LOOPBACK}:{}", ports.ray),
            token_path: crate::secret::ray_token_path(folder),
            environment: ray_env.clone(),
            data,
            client_address: format!("ray://{LOOPBACK}:{}", ports.client),
        });
    }
    let at = |name: &str| pages.get(name).map(|port| format!("127.0.0.1:{port}"));
    Some(Access {
        dashboard_url: format!("http://{}", at("dashboard")?),
        // The GCS is reachable from the cluster's nodes only, not from here.
        gcs_address: String::new(),
        token_path: crate::secret::ray_token_path(folder),
        environment: None,
        data: None,
        client_address: format!("ray://{}", at("client")?),
    })
}

fn unseen(state: &ClusterState, node: &NodeSpec) -> NodeReport {
    let stopped = was_stopped(state, &node.host);
    let by_hand = state.stopped_by_hand().contains(&node.key);
    NodeReport {
        name: node.key.display_name(),
        group: node.group().map(str::to_owned),
        host: node.host.display_name(),
        running: !stopped && !by_hand,
        stopped_by_hand: by_hand,
        pid: None,
        age_seconds: None,
        ended: match (stopped, by_hand) {
            (true, _) => Some("it was stopped".to_owned()),
            (false, true) => Some(BY_HAND.to_owned()),
            (false, false) => None,
        },
        last_end: None,
    }
}

/// Whether the nodes of a host were ended by `stop`.
fn was_stopped(state: &ClusterState, host: &Key) -> bool {
    state.project(&project_of(host)).is_some_and(|project| project.stopped)
}

/// Completes a report by an inspection of the hosts.
pub(super) async fn inspect(
    settings: &Settings,
    spec: &Spec,
    store: &Store,
    report: StatusReport,
) -> Result<StatusReport> {
    let world = open_world(settings, spec, store, Purpose::Glance)?;
    let state = store.state();
    let observed = tokio::time::timeout(INSPECTION_TIMEOUT, world.observe(state)).await;
    let observed = observed.ok().and_then(Result::ok);
    let ends = observed.as_ref().and_then(end_of);
    let report = StatusReport { ends: ends.or(report.ends), ..report };
    Ok(with_observation(&world, state, report, observed.as_ref()))
}

fn with_observation(
    world: &ProjectWorld,
    state: &ClusterState,
    mut report: StatusReport,
    observed: Option<&Observed>,
) -> StatusReport {
    // Deleted by someone else, or ended. A standing host is not created by the provider, so it cannot be gone.
    let why_gone = |host: &Key| observed.and_then(|_| world.why_gone(state, host));
    let (mut running, is_here) = (0, state.is_here());
    let (node_is, by_hand) = (world.runtime().node_is(), state.stopped_by_hand());
    report.nodes.clear();
    for node in state.started_nodes() {
        let facts = world.observed_facts(&node.host);
        let containers = world.observed_containers(&node.host);
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
    for host in world.host_keys() {
        let (name, facts) = (host.display_name(), world.observed_facts(&host));
        let Some(facts) = facts else {
            if why_gone(&host).is_some() { &mut report.gone_hosts } else { &mut report.silent_hosts }.push(name);
            continue;
        };
        if restarted(state, &host, &facts) {
            report.restarted = true;
            report.restarted_hosts.extend((!is_here).then(|| name.clone()));
        }
        report.containers.extend(world.observed_containers(&host).iter().map(|container| ContainerReport {
            name: container.key.display_name(),
            host: name.clone(),
            state: container.state.clone(),
            health: container.health.clone(),
            age_seconds: Some(container).filter(|container| container.is_running()).and_then(age),
        }));
    }
    if observed.is_some() && report.phase != "waiting" {
        report.phase = match (running, report.nodes.len()) {
            (_, 0) => report.phase,
            (0, _) => "stopped",
            (some, all) if some < all => "partly",
            _ if world.is_ready_since(state.ready_since) => "ready",
            _ => "running",
        };
        report.ready_since = state.ready_since.filter(|_| report.phase == "ready");
    }
    report
}

impl ProjectWorld {
    /// Reports hosts that were restarted since they were prepared: no process there survived.
    pub(super) fn report_restarts(&self, known: &ClusterState) {
        let hosts = self.host_keys();
        let is_restarted = |host: &&Key| self.observed_facts(host).is_some_and(|now| restarted(known, host, &now));
        for host in hosts.iter().filter(is_restarted) {
            let name = match self.place_of(host) {
                Some(HostPlace::Local { .. }) => "this machine".to_owned(),
                _ => host.display_name(),
            };
            self.config
                .events
                .note(format!("{name} was restarted since the cluster was started: none of its processes survived"));
        }
    }
}

impl ProjectWorld {
    /// Whether all checks passed at `ready` and no observed node was started after that: a new one is unchecked.
    pub(super) fn is_ready_since(&self, ready: Option<jiff::Timestamp>) -> bool {
        let Some(ready) = ready else { return false };
        let hosts = self.host_keys();
        let mut nodes = hosts.iter().flat_map(|host| self.observed_containers(host)).filter(|part| part.key.is_node());
        nodes.all(|node| node.started_at.parse::<jiff::Timestamp>().map_or(true, |started| started <= ready))
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
