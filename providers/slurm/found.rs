//! What passes from `resolve` to the requests.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::provider::{Finding, HostRequest};

#[derive(Debug, Serialize, Deserialize)]
struct Found {
    /// The nodes of the job, which are the cluster's hosts.
    nodes: usize,
}

/// The finding for each host of so many.
pub(super) fn finding(nodes: usize) -> Result<Finding> {
    Finding::of(&Found { nodes })
}

/// The number of nodes of the job that a host needs; one, before it is resolved.
pub(super) fn nodes_of(request: &HostRequest) -> Result<usize> {
    Ok(request.found.read::<Found>()?.map_or(1, |found| found.nodes))
}
