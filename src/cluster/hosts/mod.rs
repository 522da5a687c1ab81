//! The backend for clusters on hosts: one project per host, in either runtime, on this machine or by SSH.

mod acquire;
mod affected_paths;
mod capacity;
mod connector;
mod down;
mod effects;
mod expected;
mod files;
mod goal;
mod images;
mod observe;
mod open;
mod outside;
mod promise;
mod status;
#[cfg(test)]
mod tests;
mod up;
mod verify;
mod worker;
mod world;

use std::path::Path;

use async_trait::async_trait;

use connector::HostConnections;
pub use connector::HostConnector;

use crate::cluster::contract::Backend;
use crate::cluster::options::{DownOptions, UpOptions};
use crate::cluster::outcome::{Planned, Proof, UpOutcome, Verified};
use crate::cluster::report::StatusReport;
use crate::cluster::settings::Settings;
use crate::error::Result;
use crate::ray::Access;
use crate::runtime::project::ByHand;
use crate::spec::{Loaded, NodeSpec, Spec};
use crate::state::{ClusterState, Store};

/// The backend that runs nodes on hosts.
pub(super) struct Hosts;

#[async_trait(?Send)]
impl Backend for Hosts {
    async fn up(
        &self,
        settings: &Settings,
        loaded: &Loaded,
        options: &UpOptions,
        known: Option<Store>,
    ) -> Result<UpOutcome> {
        up::up(settings, loaded, options, known).await
    }

    async fn plan(&self, settings: &Settings, loaded: &Loaded, known: Option<Store>) -> Result<Planned> {
        up::plan(settings, loaded, known).await
    }

    async fn verify(&self, settings: &Settings, spec: &Spec, store: Store) -> Result<Verified> {
        verify::verify(settings, spec, store).await
    }

    async fn stop(&self, settings: &Settings, spec: &Spec, store: Store) -> Result<Vec<String>> {
        down::stop(settings, spec, store).await
    }

    async fn by_hand(
        &self,
        settings: &Settings,
        spec: &Spec,
        store: Store,
        worker: &NodeSpec,
        by_hand: ByHand,
    ) -> Result<()> {
        worker::by_hand(settings, spec, store, worker, by_hand).await
    }

    async fn down(&self, settings: &Settings, spec: &Spec, store: Store, options: DownOptions) -> Result<Proof> {
        down::down(settings, spec, store, options).await
    }

    async fn leaves_traces(&self, settings: &Settings, spec: &Spec, store: &Store) -> bool {
        down::leaves_traces(settings, spec, store).await
    }

    fn report(&self, state: &ClusterState, report: StatusReport) -> StatusReport {
        status::known(state, report)
    }

    async fn inspect(
        &self,
        settings: &Settings,
        spec: &Spec,
        store: &Store,
        report: StatusReport,
    ) -> Result<StatusReport> {
        status::inspect(settings, spec, store, report).await
    }

    fn access(&self, state: &ClusterState, folder: &Path) -> Option<Access> {
        status::access_of(state, folder)
    }
}
