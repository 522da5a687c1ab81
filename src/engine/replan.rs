//! What a branch of the plan goes on with that was refused for want of capacity, while the other branches go on.

use async_trait::async_trait;

use super::Ledger;
use crate::error::{Error, Result};
use crate::provider::ResourceRequest;

/// Plans one branch anew.
#[async_trait]
pub trait Replan: Send + Sync {
    /// What to ask for instead of the last of `refused`: all that this operation has asked for, in that order. May take hours, and be
    /// dropped at any await point.
    ///
    /// # Errors
    /// The branch ends: with the refusal, or with what came in its way.
    async fn instead(&self, refused: &[ResourceRequest], refusal: Error, ledger: &Ledger) -> Result<ResourceRequest>;

    /// Hears what an operation has failed with: who waits may have waited long enough.
    fn heed(&self, error: &Error);
}

/// A refusal ends its branch.
#[derive(Debug, Clone, Copy)]
pub struct NothingElse;

#[async_trait]
impl Replan for NothingElse {
    async fn instead(&self, _refused: &[ResourceRequest], refusal: Error, _ledger: &Ledger) -> Result<ResourceRequest> {
        Err(refusal)
    }

    fn heed(&self, _error: &Error) {}
}
