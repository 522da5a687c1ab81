//! What verbs come to.

use serde::Serialize;

use crate::event::{Endpoint, WorkerGpus};
use crate::plan::Plan;
use crate::provider::Start;
use crate::state::Spending;

/// What `up` would do.
#[derive(Debug)]
pub struct Planned {
    /// The operations.
    pub plan: Plan,
    /// What they touch on hosts.
    pub affected_paths: Vec<HostAffectedPaths>,
    /// What else there is to know before.
    pub notes: Vec<String>,
}

/// What `up` may change on one host. What is there and works already is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostAffectedPaths {
    /// The host: `host-0`.
    pub host: String,
    /// In words: `package docker.io`, `file /etc/docker/daemon.json`, `container gpucl-…-head`.
    pub affected_paths: Vec<String>,
}

/// How `up` ended.
#[derive(Debug)]
pub enum UpOutcome {
    /// The cluster is ready.
    Ready(UpReport),
    /// Its hosts can be had later; nothing was asked for yet. An armed start waits for them.
    Later(Start),
}

/// What `up` came to.
#[derive(Debug)]
pub struct UpReport {
    /// How many operations it took; none when all was as it should be.
    pub operations: usize,
    /// How many checks passed.
    pub checks: usize,
    /// The GPUs that workers were seen to own, where containers were looked into.
    pub gpus: Vec<WorkerGpus>,
    /// What answers now, and where.
    pub endpoints: Vec<Endpoint>,
    /// It answers as it is, without `gpucl dashboard`: the cluster runs on this machine.
    pub is_here: bool,
    /// What it costs.
    pub spending: Spending,
}

/// What checks came to when none failed.
#[derive(Debug, Clone, Default)]
pub struct Verified {
    /// How many passed.
    pub passed: usize,
    /// The GPUs that workers were seen to own, where containers were looked into.
    pub gpus: Vec<WorkerGpus>,
}

/// How it is known that nothing is left.
#[derive(Debug, Default)]
pub struct Proof {
    /// What was removed.
    pub removed: Vec<String>,
    /// What was looked at afterwards, and what was seen.
    pub seen: Vec<String>,
    /// What could not be known.
    pub unknown: Vec<String>,
    /// What stays on purpose.
    pub kept: Vec<String>,
    /// What it cost, from its first launch until it was gone.
    pub spending: Spending,
}
