//! What every backend does. The verbs take locks and stores, and leave the rest to it.

use std::path::Path;

use async_trait::async_trait;

use crate::cluster::{DownOptions, Planned, Proof, Settings, StatusReport, UpOptions, UpOutcome, Verified};
use crate::error::Result;
use crate::ray::Access;
use crate::spec::{Loaded, Spec};
use crate::state::{ClusterState, Store};

/// All that can be done with a cluster. The compiler sees that whoever runs nodes does each of it.
#[async_trait(?Send)]
pub(in crate::cluster) trait Backend {
    /// Brings it up, or to what its spec says now, and verifies it.
    async fn up(
        &self,
        settings: &Settings,
        loaded: &Loaded,
        options: &UpOptions,
        known: Option<Store>,
    ) -> Result<UpOutcome>;

    /// What `up` would do. Reads, writes nothing but the way there.
    async fn plan(&self, settings: &Settings, loaded: &Loaded, known: Option<Store>) -> Result<Planned>;

    /// Runs all checks once more.
    async fn verify(&self, settings: &Settings, spec: &Spec, store: Store) -> Result<Verified>;

    /// Ends all nodes; hands back what is kept.
    async fn stop(&self, settings: &Settings, spec: &Spec, store: Store) -> Result<Vec<String>>;

    /// Removes all of it, and proves that nothing is left.
    async fn down(&self, settings: &Settings, spec: &Spec, store: Store, options: DownOptions) -> Result<Proof>;

    /// Whether something of it is there, as its runtime would leave it: for a cluster of which the state is lost.
    async fn leaves_traces(&self, settings: &Settings, spec: &Spec, store: &Store) -> bool;

    /// Completes a report by what is known, without asking anybody.
    fn report(&self, state: &ClusterState, report: StatusReport) -> StatusReport;

    /// Completes it by what is seen now.
    async fn inspect(
        &self,
        settings: &Settings,
        spec: &Spec,
        store: &Store,
        report: StatusReport,
    ) -> Result<StatusReport>;

    /// The ways into what runs; `None` when nothing does.
    fn access(&self, state: &ClusterState, folder: &Path) -> Option<Access>;
}
