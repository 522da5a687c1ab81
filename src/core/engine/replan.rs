//! Replanning one branch of the plan after a refusal for lack of capacity, while the other branches go on.

use async_trait::async_trait;

use super::Ledger;
use crate::error::{Error, Result};
use crate::provider::ResourceRequest;

/// Replans a refused branch; unless it is implemented, a refusal ends its branch.
#[async_trait]
pub trait Replan: Send + Sync {
    /// Returns what to request instead of the last of `refused`, which lists all requests of this operation in order.
    /// May take hours, and be dropped at any await point.
    ///
    /// # Errors
    /// The refusal or another error, with which the branch ends.
    async fn replacement(
        &self,
        _refused: &[ResourceRequest],
        refusal: Error,
        _ledger: &Ledger,
    ) -> Result<ResourceRequest> {
        Err(refusal)
    }

    /// Notes the error of any operation: it may end a capacity wait.
    fn note_failure(&self, _error: &Error) {}
}

/// No replanning.
#[derive(Debug, Clone, Copy)]
pub struct NothingElse;

impl Replan for NothingElse {}
