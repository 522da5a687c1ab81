//! The world that the engine acts on: resources, and hosts where it has any; one in memory is for crash tests.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::Ledger;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::plan::{HostAction, Observed};
use crate::provider::{ObservedResource, ResourceRequest};
use crate::state::ClusterState;

/// Everything outside the engine that an operation can change. Each call may be dropped at any await point.
#[async_trait]
pub trait World: Send + Sync {
    /// Observes what exists of this cluster, duplicates included. Read-only.
    async fn observe(&self, known: &ClusterState) -> Result<Observed>;

    /// Acquires one resource and returns its id, which is in the ledger as soon as the resource exists.
    async fn acquire(&self, request: &ResourceRequest, ledger: &Ledger) -> Result<String>;

    /// Waits until a resource is usable. The first Ctrl-C drops it.
    async fn wait_usable(&self, request: &ResourceRequest, id: &str, ledger: &Ledger) -> Result<()>;

    /// Changes a resource in place.
    ///
    /// # Errors
    /// Of kind `Unsupported` where resources are made again instead.
    async fn update(&self, request: &ResourceRequest, _id: &str, _ledger: &Ledger) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("change {}", request.key)).because("it is made again instead"))
    }

    /// Releases a resource; succeeds if there is none.
    async fn release(&self, resource: &ObservedResource) -> Result<()>;

    /// The hosts, if it has any.
    fn hosts(&self) -> Option<&dyn Hosts> {
        None
    }

    /// When a resource begins to cost, if not on creation: a lease costs from its start.
    fn costs_from(&self, _request: &ResourceRequest) -> Option<Timestamp> {
        None
    }

    /// How long after a call its effect may still be missing from `observe`.
    fn consistency_delay(&self) -> Duration;
}

/// The hosts of a world.
#[async_trait]
pub trait Hosts: Send + Sync {
    /// Does this on a host; `key` is that of the host, or of its project.
    ///
    /// # Behavior
    /// - What creates a project records its id in the ledger before that.
    /// - What removes something succeeds if there is nothing to remove.
    /// - May be dropped at any await point.
    async fn perform(&self, key: &Key, action: &HostAction, ledger: &Ledger) -> Result<()>;
}
