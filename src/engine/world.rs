//! What the engine acts upon: providers, hosts, processes. One for real, one in memory for the crash tests.

use async_trait::async_trait;

use super::Ledger;
use crate::error::Result;
use crate::plan::{Observed, Operation};
use crate::provider::ResourceRequest;
use crate::state::ClusterState;

/// Everything outside of the engine that an operation can change.
#[async_trait]
pub trait World: Send + Sync {
    /// What exists of this cluster, duplicates included. Read-only.
    async fn observe(&self, known: &ClusterState) -> Result<Observed>;

    /// Does one operation.
    ///
    /// # Behavior
    /// - An operation that makes something gives its id to the ledger as soon as it exists.
    /// - An operation that removes something succeeds when there is nothing to remove.
    /// - May be dropped at any await point.
    async fn perform(&self, operation: &Operation, ledger: &Ledger) -> Result<()>;

    /// When what is asked for begins to cost, where that is not when it is there: a lease costs from its start on.
    fn costs_from(&self, _request: &ResourceRequest) -> Option<jiff::Timestamp> {
        None
    }

    /// How long after a call its effect may still be missing from `observe`.
    fn consistency_delay(&self) -> std::time::Duration;
}
