//! The reports that `status` and `list` print.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::ending::EndReport;
use crate::money::Money;
use crate::name::ClusterName;
use crate::runtime::project::{ContainerHealth, ContainerState};
use crate::state::{ClusterState, Spending};
use crate::util::human;

/// Why a worker that was stopped by hand does not run.
pub(super) const BY_HAND: &str = "it was stopped by hand";

/// The exit code of a process that was ended by SIGKILL.
const KILLED: i32 = 137;

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
    /// Its last end that nobody asked for, if the cluster was not checked since.
    pub last_end: Option<LastEnd>,
}

/// How a node ended by itself, and what follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastEnd {
    /// When, if that is known.
    pub at: Option<Timestamp>,
    /// Its exit code, if that is known.
    pub exit_code: Option<i32>,
    /// How often it was started again by itself.
    pub restarts: u32,
    /// What follows.
    pub then: AfterEnd,
}

/// What follows the end of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterEnd {
    /// It is started again by itself.
    StartsAgain,
    /// It was started again by itself.
    StartedAgain,
    /// It stays as it is until the next `up`.
    Stays,
}

/// A container of a cluster, as its host reports it.
#[derive(Debug, Clone, Serialize)]
pub struct ContainerReport {
    /// `head`, `worker-0`, `grafana`.
    pub name: String,
    /// The host's display name: `host-0`.
    pub host: String,
    /// What it does now.
    pub state: ContainerState,
    /// The result of its health check; none where it has none.
    pub health: Option<ContainerHealth>,
    /// The time since its start, in seconds.
    pub age_seconds: Option<u64>,
}

/// The limits of a cluster, and the state of the agent that enforces them.
#[derive(Debug, Clone, Serialize)]
pub struct LimitsReport {
    /// It has no limit: the agent only sees to `end:` and `idle:`.
    #[serde(skip)]
    pub is_unlimited: bool,
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

/// What a cluster is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// All its checks passed, and all nodes run.
    Ready,
    /// Its nodes run, and were not checked since they were started.
    Running,
    /// No node runs.
    Stopped,
    /// Some nodes run.
    Partly,
    /// An `up` did not come to its end.
    Unfinished,
    /// A scheduled up waits for its hosts.
    Waiting,
    /// It is on another machine with this home.
    Away,
}

impl Phase {
    /// The word for it, in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Partly => "partly",
            Self::Unfinished => "unfinished",
            Self::Waiting => "waiting",
            Self::Away => "away",
        }
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.pad(self.name())
    }
}

/// A cluster as `status` reports it.
#[derive(Debug, Clone, Serialize)]
pub struct StatusReport {
    /// The cluster's name.
    pub cluster: ClusterName,
    /// What it is at.
    pub phase: Phase,
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
    /// Its end, and how far its guards are.
    pub end: Option<EndReport>,
    /// When the reservation of its hosts ends, if they have one.
    pub ends: Option<jiff::Timestamp>,
    /// The process id of its scheduled up, while that runs.
    pub brought_up_by: Option<u32>,
    /// When its hosts become available, while a scheduled up waits.
    pub waits_until: Option<jiff::Timestamp>,
    /// What the scheduled up waits for.
    pub waits_for: Option<String>,
    /// The machine that it is on, if that is another one with this home folder.
    pub machine: Option<String>,
}

impl StatusReport {
    /// What happened to nodes that ended by themselves: when, and whether they come back; one sentence for each.
    pub fn happened(&self, now: Timestamp) -> Vec<String> {
        let head_stays = self.nodes.iter().any(|node| node.name == "head" && stays(node));
        self.nodes.iter().filter_map(|node| Some(sentence(node, node.last_end.as_ref()?, head_stays, now))).collect()
    }

    /// Whether all nodes that ended come back by themselves, and at least one does.
    pub fn comes_back(&self) -> bool {
        self.nodes.iter().any(|node| node.last_end.is_some()) && !self.nodes.iter().any(stays)
    }
}

/// Whether the node ended and is not started again.
fn stays(node: &NodeReport) -> bool {
    node.last_end.as_ref().is_some_and(|end| end.then == AfterEnd::Stays)
}

fn sentence(node: &NodeReport, end: &LastEnd, head_stays: bool, now: Timestamp) -> String {
    let ago = |duration: u64| human::short_duration(Duration::from_secs(duration));
    let when = end.at.map(|at| {
        let passed = u64::try_from(now.duration_since(at).as_secs()).unwrap_or_default();
        format!(" {} ago, at {}", ago(passed), at.strftime("%H:%M:%S UTC"))
    });
    let how = end.exit_code.map(|code| match code {
        KILLED => format!(" with exit code {code} (killed, as by `ray stop --force` or for lack of memory)"),
        code => format!(" with exit code {code}"),
    });
    let what = format!("{} ended{}{}", node.name, when.unwrap_or_default(), how.unwrap_or_default());
    let is_head = node.name == "head";
    match end.then {
        AfterEnd::Stays if is_head => format!(
            "{what}; it does not come back by itself, as a new head is a new cluster without the jobs and objects of \
             this one: `gpucl up` starts it"
        ),
        AfterEnd::Stays => format!("{what}; it does not come back by itself: `gpucl up` starts it"),
        AfterEnd::StartsAgain | AfterEnd::StartedAgain if head_stays => {
            format!("{what}; it comes back once the head runs: `gpucl up` starts both")
        }
        AfterEnd::StartsAgain => format!("{what}; it is coming back: it is started again by itself"),
        AfterEnd::StartedAgain => format!(
            "{what}; it was started again by itself{}, and is back once Ray lists it as alive, in a minute or two{}",
            node.age_seconds.map(|age| format!(" {} ago", ago(age))).unwrap_or_default(),
            if is_head { "; jobs and objects from before are lost" } else { "" }
        ),
    }
}

/// A cluster's state and the report on it.
#[derive(Debug)]
pub struct Known {
    /// The state, as the journal gives it.
    pub state: ClusterState,
    /// The report on that state.
    pub report: StatusReport,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, then: AfterEnd, exit_code: Option<i32>) -> NodeReport {
        let at = (then != AfterEnd::StartedAgain).then(|| "2026-11-21T12:00:00Z".parse().unwrap());
        let restarts = u32::from(then == AfterEnd::StartedAgain);
        NodeReport {
            name: name.to_owned(),
            group: None,
            host: "host-0".to_owned(),
            running: then == AfterEnd::StartedAgain,
            stopped_by_hand: false,
            pid: None,
            age_seconds: Some(9),
            ended: None,
            last_end: Some(LastEnd { at, exit_code, restarts, then }),
        }
    }

    fn says(nodes: &[NodeReport]) -> Vec<String> {
        let head_stays = nodes.iter().any(|node| node.name == "head" && stays(node));
        let now = "2026-11-21T12:00:21Z".parse().unwrap();
        let one = |node: &NodeReport| node.last_end.as_ref().map(|end| sentence(node, end, head_stays, now));
        nodes.iter().filter_map(one).collect()
    }

    #[test]
    fn what_ended_is_said_with_when_and_how_and_whether_it_comes_back() {
        let head = node("head", AfterEnd::Stays, Some(137));
        let worker = node("worker-0", AfterEnd::StartsAgain, Some(1));
        let [of_head, of_worker] = says(&[head, worker.clone()]).try_into().unwrap();
        assert!(of_head.starts_with("head ended 21.0s ago, at 12:00:00 UTC with exit code 137 (killed"), "{of_head}");
        assert!(of_head.contains("does not come back by itself") && of_head.ends_with("`gpucl up` starts it"));
        assert!(of_worker.ends_with("it comes back once the head runs: `gpucl up` starts both"), "{of_worker}");
        assert_eq!(
            says(&[worker]),
            [
                "worker-0 ended 21.0s ago, at 12:00:00 UTC with exit code 1; it is coming back: it is started again by itself"
            ]
        );
        let [of_head, of_worker] = says(&[
            node("head", AfterEnd::StartedAgain, None),
            NodeReport { last_end: None, ..node("worker-0", AfterEnd::Stays, None) },
        ])
        .try_into()
        .unwrap_or_else(|some: Vec<String>| [some[0].clone(), String::new()]);
        assert!(of_head.starts_with("head ended; it was started again by itself 9.0s ago"), "{of_head}");
        assert!(of_head.contains("jobs and objects from before are lost") && of_worker.is_empty());
    }
}
