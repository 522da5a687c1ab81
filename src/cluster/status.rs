//! `status` and `list`: what is known of clusters, and what is seen of them now.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;

use super::processes::layout;
use super::{Settings, projects};
use crate::agent::Armed;
use crate::agent::deadline::{Limits, Watcher};
use crate::error::Result;
use crate::host::LocalHost;
use crate::money::Money;
use crate::name::{ClusterName, Scope};
use crate::runtime::native;
use crate::state::{ClusterState, ItemKind, ItemState, Paths, Spending, Store};
use crate::util::process::{Identity, age};

/// One node, by what is known of it and by what its process shows.
#[derive(Debug, Clone, Serialize)]
pub struct NodeReport {
    /// `head`, `worker-0`.
    pub name: String,
    /// It runs.
    pub running: bool,
    /// Its process.
    pub pid: Option<u32>,
    /// How long it has been running, in seconds.
    pub age_seconds: Option<u64>,
    /// How it ended, if it did.
    pub ended: Option<String>,
}

/// A container of a cluster, as its host tells.
#[derive(Debug, Clone, Serialize)]
pub struct ContainerReport {
    /// `head`, `worker-0`, `grafana`.
    pub name: String,
    /// `host-0`.
    pub host: String,
    /// `running`, `exited`, `restarting`, `created`, `dead`.
    pub state: String,
    /// `healthy`, `unhealthy`, `starting`; none where it has no health check.
    pub health: Option<String>,
    /// How long it has been running, in seconds.
    pub age_seconds: Option<u64>,
}

/// When a cluster is taken down by itself, and whether somebody looks after that.
#[derive(Debug, Clone, Serialize)]
pub struct LimitsReport {
    /// When its time is over; null until its first host is acquired.
    pub at: Option<Timestamp>,
    /// What it may cost.
    pub max_cost: Option<Money>,
    /// When it will have cost that, as things are.
    pub cost_reached_at: Option<Timestamp>,
    /// The process that looks after it; null when it was killed: every command starts it again.
    pub pid: Option<u32>,
    /// It is being taken down.
    pub acts: bool,
    /// How often that was tried, and failed.
    pub failed: u32,
    /// Why the last time.
    pub last_error: Option<String>,
    /// When it is tried again.
    pub next: Option<Timestamp>,
}

impl LimitsReport {
    fn of(folder: &Path, state: &ClusterState) -> Option<Self> {
        let limits = Limits::of(folder).ok().flatten()?;
        let watcher = Watcher::of(folder);
        let alive = watcher.as_ref().and_then(Watcher::alive);
        Some(Self {
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
}

/// What is known of a cluster without asking anybody but this machine.
#[derive(Debug, Clone, Serialize)]
pub struct StatusReport {
    /// Its name.
    pub cluster: ClusterName,
    /// `ready`, `running`, `stopped`, `partly`, `unfinished`, `waiting`.
    pub phase: &'static str,
    /// Its provider.
    pub provider: String,
    /// The file that its spec came from.
    pub spec_path: Option<String>,
    /// When it was first asked for.
    pub created: jiff::Timestamp,
    /// Since when it is ready, if it is.
    pub ready_since: Option<jiff::Timestamp>,
    /// The agent runs.
    pub agent: bool,
    /// The machine was restarted since.
    pub restarted: bool,
    /// Which of its hosts were restarted since, where they are other machines.
    pub restarted_hosts: Vec<String>,
    /// Which of its hosts did not answer.
    pub silent_hosts: Vec<String>,
    /// Which of its hosts their provider has no more.
    pub gone_hosts: Vec<String>,
    /// Its containers, where it has some and its hosts were asked.
    pub containers: Vec<ContainerReport>,
    /// Its nodes.
    pub nodes: Vec<NodeReport>,
    /// What providers made for it.
    pub resources: Vec<String>,
    /// What it costs, by what is known of it.
    pub cost: Spending,
    /// When it is taken down by itself, where its spec says so.
    pub deadline: Option<LimitsReport>,
    /// When its hosts are taken away, where they were reserved for a time.
    pub ends: Option<jiff::Timestamp>,
    /// The process that waited for its hosts and brings it up by itself.
    pub brought_up_by: Option<u32>,
    /// When what it waits for begins, while it waits.
    pub waits_until: Option<jiff::Timestamp>,
    /// What it waits for.
    pub waits_for: Option<String>,
}

/// A cluster's state with its report.
#[derive(Debug)]
pub struct Known {
    /// The state.
    pub state: ClusterState,
    /// The report.
    pub report: StatusReport,
}

/// Reports on one cluster; `None` when nothing is known of it.
pub fn status(paths: &Paths, name: &ClusterName) -> Result<Option<Known>> {
    Ok(Store::open(paths, name)?.map(|store| {
        let state = store.state().clone();
        Known { report: report(paths, &state), state }
    }))
}

/// The same report by what its hosts tell now. What runs on this machine has told already.
pub async fn look(settings: &Settings, name: &ClusterName) -> Result<Option<Known>> {
    let Some(store) = Store::open(&settings.paths, name)? else { return Ok(None) };
    let state = store.state().clone();
    let report = report(&settings.paths, &state);
    let report = match state.spec.as_ref().filter(|spec| super::is_deployed(spec)) {
        Some(spec) => projects::look_status(settings, spec, &store, report).await?,
        None => report,
    };
    Ok(Some(Known { report, state }))
}

/// Reports on all clusters of this user.
pub fn list(paths: &Paths) -> Result<Vec<Known>> {
    let mut known = Vec::new();
    for name in Store::names(paths)? {
        known.extend(status(paths, &name)?);
    }
    Ok(known)
}

fn report(paths: &Paths, state: &ClusterState) -> StatusReport {
    let scope: Scope = state.scope();
    let (agents, seen) = native::observe_all(&scope);
    let nodes: Vec<NodeReport> = state
        .items
        .iter()
        .filter(|(_, item)| item.kind == ItemKind::Node)
        .map(|(key, item)| {
            let running = seen.iter().find(|node| node.key == *key && node.health == crate::plan::Health::Good);
            let identity = running.and_then(|node| node.id.parse::<Identity>().ok());
            NodeReport {
                name: key.display_name(),
                running: running.is_some(),
                pid: identity.as_ref().map(|identity| identity.pid),
                age_seconds: identity.as_ref().and_then(age).map(|age| age.as_secs()),
                ended: item
                    .notes
                    .get("ended")
                    .and_then(|how| how.as_str())
                    .map(str::to_owned)
                    .filter(|_| running.is_none()),
            }
        })
        .collect();
    let running = nodes.iter().filter(|node| node.running).count();
    let agent = !agents.is_empty();
    let phase = if nodes.is_empty() {
        // `stop` ends the agent as well: one that runs without nodes is of an `up` that did not come to its end.
        if agent || state.items.values().any(|item| item.state < ItemState::Ready) { "unfinished" } else { "stopped" }
    } else if running == nodes.len() {
        if state.ready_since.is_some() { "ready" } else { "running" }
    } else if running == 0 {
        "stopped"
    } else {
        "partly"
    };
    let report = StatusReport {
        cluster: state.name.clone(),
        phase,
        provider: state.spec.as_ref().map(|spec| spec.provider.name().to_owned()).unwrap_or_default(),
        spec_path: state.spec_path.clone(),
        created: state.created,
        ready_since: state.ready_since.filter(|_| phase == "ready"),
        agent,
        restarted: super::down::restarted(state),
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
        nodes,
        cost: state.spending(Timestamp::now()),
        deadline: LimitsReport::of(&paths.cluster(&state.name), state),
        ends: projects::ends_at(state),
        brought_up_by: None,
        waits_until: None,
        waits_for: None,
    };
    let mut report = match &state.spec {
        Some(spec) if super::is_deployed(spec) => projects::known_status(state, report),
        _ => report,
    };
    if let Some(armed) = Armed::of(&paths.cluster(&state.name)) {
        report.brought_up_by = armed.identity().map(|identity| identity.pid);
        if armed.at > jiff::Timestamp::now() {
            report.phase = "waiting";
            (report.waits_until, report.waits_for) = (Some(armed.at), Some(armed.what));
        }
    }
    report
}

/// The log files of a cluster's nodes, by the names of the nodes.
pub fn node_logs(paths: &Paths, state: &ClusterState) -> Vec<(String, PathBuf)> {
    crate::plan::started_nodes(state)
        .iter()
        .map(|node| (node.key.display_name(), layout(paths, &state.scope(), &node.host).log(&node.key)))
        .collect()
}

/// The hosts of a cluster.
pub fn hosts(paths: &Paths, state: &ClusterState) -> Result<Vec<LocalHost>> {
    state
        .items
        .iter()
        .filter(|(_, item)| matches!(item.kind, ItemKind::Resource(_)) && item.id.is_some())
        .map(|(key, _)| LocalHost::new(key.display_name(), layout(paths, &state.scope(), key).home().to_owned()))
        .collect()
}
