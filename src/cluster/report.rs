//! What `status` and `list` tell of a cluster.

use jiff::Timestamp;
use serde::Serialize;

use crate::money::Money;
use crate::name::ClusterName;
use crate::state::{ClusterState, Spending};

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
