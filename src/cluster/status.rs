//! `status` and `list`: what is known of clusters, and what is seen of them now.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;

use super::projects::ends_at;
use super::{Settings, backend};
use crate::agent::Armed;
use crate::agent::deadline::{Limits, Watcher};
use crate::error::Result;
use crate::host::LocalHost;
use crate::money::Money;
use crate::name::{ClusterName, Key};
use crate::provider::HostPlace;
use crate::state::{ClusterState, ItemKind, Paths, Spending, Store};

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
    /// Its hosts, or some of them, were restarted since.
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

/// The same report by what its hosts tell now.
pub async fn look(settings: &Settings, name: &ClusterName) -> Result<Option<Known>> {
    let Some(store) = Store::open(&settings.paths, name)? else { return Ok(None) };
    let state = store.state().clone();
    let report = report(&settings.paths, &state);
    let report = match &state.spec {
        Some(spec) => backend::of(spec)?.look(settings, spec, &store, report).await?,
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
    let report = StatusReport {
        cluster: state.name.clone(),
        phase: "unfinished",
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
        deadline: LimitsReport::of(&paths.cluster(&state.name), state),
        ends: ends_at(state),
        brought_up_by: None,
        waits_until: None,
        waits_for: None,
    };
    let backend = state.spec.as_ref().and_then(|spec| backend::of(spec).ok());
    let mut report = backend.map_or(report.clone(), |backend| backend.report(state, report));
    if let Some(armed) = Armed::of(&paths.cluster(&state.name)) {
        report.brought_up_by = armed.identity().map(|identity| identity.pid);
        if armed.at > jiff::Timestamp::now() {
            report.phase = "waiting";
            (report.waits_until, report.waits_for) = (Some(armed.at), Some(armed.what));
        }
    }
    report
}

/// Its hosts are this machine: what answers there answers here.
pub fn is_here(state: &ClusterState) -> bool {
    let mut places = state.hosts().map(|(_, host)| &host.place).peekable();
    places.peek().is_some() && places.all(|place| matches!(place, Some(HostPlace::Local { .. })))
}

/// The log files of a cluster's nodes on this machine, by their names, and of what looks after them.
pub fn node_logs(state: &ClusterState) -> Vec<(String, PathBuf)> {
    let folder = |host: &Key| match state.host(host)?.place.as_ref()? {
        HostPlace::Local { folder, .. } => Some(folder.join("logs")),
        HostPlace::Ssh { .. } => None,
    };
    let log = |host: &Key, name: String| Some((name.clone(), folder(host)?.join(format!("{name}.log"))));
    let nodes = state.started_nodes();
    let supervisor = nodes.first().and_then(|head| log(&head.host, "supervisor".to_owned()));
    nodes.iter().filter_map(|node| log(&node.host, node.key.display_name())).chain(supervisor).collect()
}

/// The hosts of a cluster that are this machine.
pub fn local_hosts(state: &ClusterState, environment: &[(OsString, OsString)]) -> Result<Vec<LocalHost>> {
    let hosts = state.hosts().filter_map(|(key, host)| match &host.place {
        Some(HostPlace::Local { folder, .. }) => Some((key, folder.clone())),
        _ => None,
    });
    hosts.map(|(key, folder)| LocalHost::new(key.display_name(), folder, environment.iter().cloned())).collect()
}
