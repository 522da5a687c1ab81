//! What passes from `resolve` to the requests.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::provider::{Finding, HostRequest, ResourceRequest};

#[derive(Debug, Serialize, Deserialize)]
struct JobFound {
    /// The nodes of the job, which are the cluster's hosts.
    nodes: usize,
    /// The user's own allocation to start in, instead of a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allocation: Option<u64>,
}

/// The finding for each host of so many.
pub(super) fn finding(nodes: usize, allocation: Option<u64>) -> Result<Finding> {
    Finding::of(&JobFound { nodes, allocation })
}

/// The number of nodes of the job that a host needs; one, before it is resolved.
pub(super) fn nodes_of(request: &HostRequest) -> Result<usize> {
    Ok(request.found.read::<JobFound>()?.map_or(1, |found| found.nodes))
}

/// The user's own allocation to start in, if there is one.
pub(super) fn allocation_of(request: &ResourceRequest) -> Result<Option<u64>> {
    Ok(request.found.read::<JobFound>()?.and_then(|found| found.allocation))
}
