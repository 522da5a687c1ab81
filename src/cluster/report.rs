//! The reports that `status` and `list` print.

use jiff::Timestamp;
use serde::Serialize;

use crate::money::Money;
use crate::name::ClusterName;
use crate::state::{ClusterState, Spending};

/// One node, from the state and the last inspection.
#[derive(Debug, Clone, Serialize)]
pub struct NodeReport {
    /// `head`, `worker-0`.
    pub name: String,
    /// The name of its group, if that has one.
    pub group: Option<String>,
    /// The host's display name: `host-0`.
    pub host: String,
    /// Whether it is running.
    pub running: bool,
    /// Whether it was stopped by hand, and not started since.
    pub stopped_by_hand: bool,
    /// Its process id, for a cluster on this machine.
    pub pid: Option<u32>,
    /// The time since its start, in seconds.
    pub age_seconds: Option<u64>,
    /// How it ended, if it did.
    pub ended: Option<String>,
}

/// A container of a cluster, as its host reports it.
#[derive(Debug, Clone, Serialize)]
pub struct ContainerReport {
    /// `head`, `worker-0`, `grafana`.
    pub name: String,
    /// The host's display name: `host-0`.
    pub host: String,
    /// `running`, `exited`, `restarting`, `created`, `dead`.
    pub state: String,
    /// `healthy`, `unhealthy`, `starting`; none where it has no health check.
    pub health: Option<String>,
    /// The time since its start, in seconds.
    pub age_seconds: Option<u64>,
}

/// The limits of a cluster, and the state of the agent that enforces them.
#[derive(Debug, Clone, Serialize)]
pub struct LimitsReport {
    /// The deadline; null until the first host is acquired.
    pub at: Option<Timestamp>,
    /// The cost limit.
    pub max_cost: Option<Money>,
    /// When the cost reaches that limit at the current rate.
    pub cost_reached_at: Option<Timestamp>,
    /// The agent's process id; null when it was killed: every command starts it again.
    pub pid: Option<u32>,
    /// It is being taken down.
    pub acts: bool,
    /// The number of failed attempts to take it down.
    pub failed: u32,
    /// The error of the last attempt.
    pub last_error: Option<String>,
    /// The time of the next attempt.
    pub next: Option<Timestamp>,
}

/// A cluster as `status` reports it.
#[derive(Debug, Clone, Serialize)]
pub struct StatusReport {
    /// The cluster's name.
    pub cluster: ClusterName,
    /// `ready`, `running`, `stopped`, `partly`, `unfinished`, `waiting`.
    pub phase: &'static str,
    /// The provider's name.
    pub provider: String,
    /// The spec's file.
    pub spec_path: Option<String>,
    /// When it was first requested.
    pub created: jiff::Timestamp,
    /// When all checks last passed, if it is ready.
    pub ready_since: Option<jiff::Timestamp>,
    /// Whether any host was restarted since it was prepared.
    pub restarted: bool,
    /// The remote hosts that were restarted since they were prepared.
    pub restarted_hosts: Vec<String>,
    /// The hosts that did not answer.
    pub silent_hosts: Vec<String>,
    /// The hosts that their provider no longer has.
    pub gone_hosts: Vec<String>,
    /// Its containers, after an inspection of its hosts.
    pub containers: Vec<ContainerReport>,
    /// Its Ray nodes, the head first.
    pub nodes: Vec<NodeReport>,
    /// The resources that it has or uses.
    pub resources: Vec<String>,
    /// The estimated cost.
    pub cost: Spending,
    /// The limits of its spec, if any.
    pub deadline: Option<LimitsReport>,
    /// When the reservation of its hosts ends, if they have one.
    pub ends: Option<jiff::Timestamp>,
    /// The process id of its scheduled up, while that runs.
    pub brought_up_by: Option<u32>,
    /// When its hosts become available, while a scheduled up waits.
    pub waits_until: Option<jiff::Timestamp>,
    /// What the scheduled up waits for.
    pub waits_for: Option<String>,
}

/// A cluster's state and the report on it.
#[derive(Debug)]
pub struct Known {
    /// The state, as the journal gives it.
    pub state: ClusterState,
    /// The report on that state.
    pub report: StatusReport,
}
