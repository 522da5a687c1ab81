//! `status` and `list`: clusters as the state knows them, and as an inspection finds them.

use std::path::Path;

use jiff::Timestamp;

use super::ending::ending;
use super::guards::tell;
use super::open::open;
use super::report::{BY_HAND, Known, LimitsReport, NodeReport, Phase, StatusReport};
use super::settings::Settings;
use super::substrate::{Look, Opening};
use super::which_machine::other_machine;
use crate::agent::ScheduledUp;
use crate::agent::limits::Limits;
use crate::agent::watcher::Watcher;
use crate::error::Result;
use crate::name::ClusterName;
use crate::spec::NodeSpec;
use crate::state::{ClusterState, ItemKind, Paths, Store};

/// Reports on one cluster from its state alone; `None` if it has none.
pub fn status(paths: &Paths, name: &ClusterName) -> Result<Option<Known>> {
    Ok(Store::open(paths, name)?.map(|store| {
        let state = store.state().clone();
        Known { report: report(paths, &state), state }
    }))
}

/// Reports on one cluster after an inspection of its hosts.
pub async fn inspect(settings: &Settings, name: &ClusterName) -> Result<Option<Known>> {
    let Some(store) = Store::open(&settings.paths, name)? else { return Ok(None) };
    let state = store.state().clone();
    let report = report(&settings.paths, &state);
    let report = match &state.spec {
        Some(spec) if report.machine.is_none() => {
            let substrate = open(&Opening::of(settings, spec, &store, Look::Running))?;
            let folder = settings.paths.cluster(name);
            // What the guards say is looked at beside the nodes; what was known of them stays if they are silent.
            let (inspected, _) = tokio::join!(substrate.inspect(&state, report), tell(settings, &state, &folder));
            StatusReport { end: ending(&folder, &state), ..inspected? }
        }
        _ => report,
    };
    Ok(Some(Known { report, state }))
}

/// Reports on all clusters of this user, from their state alone.
pub fn list(paths: &Paths) -> Result<Vec<Known>> {
    let mut known = Vec::new();
    for name in Store::names(paths)? {
        known.extend(status(paths, &name)?);
    }
    Ok(known)
}

/// The limits of a cluster and their agent, from the files in its folder.
fn limits_of(folder: &Path, state: &ClusterState) -> Option<LimitsReport> {
    let limits = Limits::of(folder).ok().flatten()?;
    let watcher = Watcher::of(folder);
    let alive = watcher.as_ref().and_then(Watcher::alive);
    Some(LimitsReport {
        is_unlimited: limits.describe().is_empty(),
        at: limits.ends(state.begun_at_most()),
        max_cost: limits.max_cost,
        cost_reached_at: limits.cost_ends(state, Timestamp::now()),
        pid: alive.map(|identity| identity.pid),
        acts: watcher.as_ref().is_some_and(|watcher| watcher.acts),
        failed: watcher.as_ref().map_or(0, |watcher| watcher.failed),
        last_error: watcher.as_ref().and_then(|watcher| watcher.last_error.clone()),
        next: watcher.and_then(|watcher| watcher.next),
    })
}

fn report(paths: &Paths, state: &ClusterState) -> StatusReport {
    let mut report = StatusReport {
        cluster: state.name.clone(),
        phase: Phase::Unfinished,
        provider: state.spec.as_ref().map(|spec| spec.provider.name().to_owned()).unwrap_or_default(),
        spec_path: state.spec_path.clone(),
        created: state.created,
        ready_since: None,
        restarted: false,
        restarted_hosts: Vec::new(),
        silent_hosts: Vec::new(),
        gone_hosts: Vec::new(),
        containers: Vec::new(),
        resources: state
            .items
            .iter()
            .filter_map(|(key, item)| match &item.kind {
                ItemKind::Resource(kind) => Some(format!("{kind} {}", key.display_name())),
                _ => None,
            })
            .collect(),
        nodes: Vec::new(),
        cost: state.spending(Timestamp::now()),
        deadline: limits_of(&paths.cluster(&state.name), state),
        end: ending(&paths.cluster(&state.name), state),
        ends: state.ends(),
        brought_up_by: None,
        waits_until: None,
        waits_for: None,
        machine: None,
    };
    report.machine = other_machine(paths, state);
    if report.machine.is_some() {
        report.phase = Phase::Away;
        return report;
    }
    report.phase = phase(state);
    report.ready_since = state.ready_since.filter(|_| report.phase == Phase::Ready);
    report.nodes = state.started_nodes().iter().map(|node| unseen(state, node)).collect();
    if let Some(scheduled_up) = ScheduledUp::of(&paths.cluster(&state.name)) {
        report.brought_up_by = scheduled_up.identity().map(|identity| identity.pid);
        if scheduled_up.at > jiff::Timestamp::now() {
            report.phase = Phase::Waiting;
            (report.waits_until, report.waits_for) = (Some(scheduled_up.at), Some(scheduled_up.what));
        }
    }
    report
}

/// The phase of a cluster as its state has it.
fn phase(state: &ClusterState) -> Phase {
    let projects = state.projects().map(|(_, project)| project.stopped);
    let mut stopped = projects.chain(state.platform().map(|platform| platform.stopped)).peekable();
    let runs_something = stopped.peek().is_some();
    if runs_something && stopped.all(|stopped| stopped) {
        Phase::Stopped
    } else if state.ready_since.is_some() {
        Phase::Ready
    } else if !runs_something && state.items.is_empty() {
        Phase::Stopped
    } else {
        Phase::Unfinished
    }
}

/// A node as the state has it.
fn unseen(state: &ClusterState, node: &NodeSpec) -> NodeReport {
    let stopped = state.projects().any(|(_, project)| project.stopped && project.nodes.contains(node));
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
