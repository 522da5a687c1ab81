//! The results of the verbs.

use serde::Serialize;

use crate::event::{Endpoint, WorkerGpus};
use crate::plan::Plan;
use crate::provider::Start;
use crate::state::Spending;

/// The result of `plan`.
#[derive(Debug)]
pub struct Planned {
    /// The operations that `up` would run.
    pub plan: Plan,
    /// What `up` would do for the applications of the spec, one sentence each.
    pub applications: Vec<String>,
    /// What these operations may change on each host.
    pub affected_paths: Vec<HostAffectedPaths>,
    /// Further notes for the user.
    pub notes: Vec<String>,
}

/// What `up` may change on one host. Whatever already works is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostAffectedPaths {
    /// The host's display name: `host-0`.
    pub host: String,
    /// Such as `package docker.io`, `file /etc/docker/daemon.json`, `container gpucl-…-head`.
    pub affected_paths: Vec<String>,
}

/// The result of a successful `up`.
#[derive(Debug)]
pub enum UpOutcome {
    /// The cluster is ready.
    Ready(UpReport),
    /// Its hosts become available later; nothing was acquired yet. A scheduled up waits for them.
    Later(Start),
}

/// The report of an `up` that made the cluster ready.
#[derive(Debug)]
pub struct UpReport {
    /// The number of operations; zero when nothing had to change.
    pub operations: usize,
    /// The number of checks that passed.
    pub checks: usize,
    /// The GPUs that checks found in each worker.
    pub gpus: Vec<WorkerGpus>,
    /// The cluster's URLs.
    pub endpoints: Vec<Endpoint>,
    /// The cluster runs on this machine, so that its URLs work without `gpucl dashboard`.
    pub is_here: bool,
    /// The cost per hour and so far.
    pub spending: Spending,
    /// Its last minutes have begun, and workers are drained: nothing was started or checked.
    pub is_ending: bool,
}

/// The result of checks of which none failed.
#[derive(Debug, Clone, Default)]
pub struct Verified {
    /// The number of checks that passed.
    pub passed: usize,
    /// The GPUs that checks found in each worker.
    pub gpus: Vec<WorkerGpus>,
}

/// The result of `down`: the evidence that nothing is left.
#[derive(Debug, Default)]
pub struct Proof {
    /// What was removed.
    pub removed: Vec<String>,
    /// What was inspected afterwards, and the finding.
    pub seen: Vec<String>,
    /// What could not be determined.
    pub unknown: Vec<String>,
    /// What was saved before.
    pub saved: Vec<String>,
    /// What was to be saved, and is lost, and why.
    pub lost: Vec<String>,
    /// What was kept on purpose.
    pub kept: Vec<String>,
    /// The cost from the first launch until the last release.
    pub spending: Spending,
}

impl Proof {
    /// What [`Self::seen`] says after the provider was asked again, and had nothing.
    pub(super) fn at_provider(name: &str) -> String {
        format!("asked the provider `{name}` again: nothing there has this cluster's tag")
    }
}
