//! The backend for clusters on platforms: a few objects, which the platform turns into nodes.

mod consent;
mod down;
mod goal;
mod preparation;
mod status;
mod up;
mod verify;
mod world;

use std::path::Path;

use async_trait::async_trait;

use crate::cluster::contract::Backend;
use crate::cluster::options::{DownOptions, UpOptions};
use crate::cluster::outcome::{Planned, Proof, UpOutcome, Verified};
use crate::cluster::report::StatusReport;
use crate::cluster::settings::Settings;
use crate::error::{Error, ErrorKind, Result};
use crate::ray::Access;
use crate::runtime::project::ByHand;
use crate::spec::{Loaded, NodeSpec, Spec};
use crate::state::{ClusterState, Store};

pub(super) use up::manifest;

/// The backend that lets a platform run the nodes.
pub(super) struct OnPlatform;

#[async_trait(?Send)]
impl Backend for OnPlatform {
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
        up::stop(settings, spec, store).await
    }

    async fn by_hand(
        &self,
        _settings: &Settings,
        spec: &Spec,
        _store: Store,
        _worker: &NodeSpec,
        by_hand: ByHand,
    ) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("{} of {}", by_hand.name(), spec.name))
            .because("the platform decides which workers run"))
    }

    async fn down(&self, settings: &Settings, spec: &Spec, store: Store, _options: DownOptions) -> Result<Proof> {
        down::down(settings, spec, store).await
    }

    async fn leaves_traces(&self, _settings: &Settings, _spec: &Spec, _store: &Store) -> bool {
        // Its objects are its resources.
        false
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
        status::access(state, folder)
    }
}
