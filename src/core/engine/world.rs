//! The world that the engine acts on: hosts or a platform; one in memory is for crash tests.

use async_trait::async_trait;

use super::Ledger;
use crate::error::Result;
use crate::plan::{Observed, Operation};
use crate::provider::ResourceRequest;
use crate::state::ClusterState;

/// Everything outside the engine that an operation can change.
#[async_trait]
pub trait World: Send + Sync {
    /// Observes what exists of this cluster, duplicates included. Read-only.
    async fn observe(&self, known: &ClusterState) -> Result<Observed>;

    /// Performs one operation.
    ///
    /// # Behavior
    /// - An operation that creates something records its id in the ledger as soon as it exists.
    /// - An operation that removes something succeeds if there is nothing to remove.
    /// - May be dropped at any await point.
    async fn perform(&self, operation: &Operation, ledger: &Ledger) -> Result<()>;

    /// When a resource begins to cost, if not on creation: a lease costs from its start.
    fn costs_from(&self, _request: &ResourceRequest) -> Option<jiff::Timestamp> {
        None
    }

    /// How long after a call its effect may still be missing from `observe`.
    fn consistency_delay(&self) -> std::time::Duration;
}
