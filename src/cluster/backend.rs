//! What runs a cluster's nodes, by the kind of its provider. The verbs take locks and stores, and leave the rest to it.

use std::path::Path;

use async_trait::async_trait;

use super::projects::Hosts;
use super::{DownOptions, Planned, Proof, Settings, StatusReport, UpOptions, UpOutcome, Verified};
use crate::error::{Error, ErrorKind, Result};
use crate::provider::ProviderKind;
use crate::providers;
use crate::ray::Access;
use crate::spec::{Loaded, Spec};
use crate::state::{ClusterState, Store};

/// All that can be done with a cluster. The compiler sees that whoever runs nodes does each of it.
#[async_trait(?Send)]
pub(super) trait Backend {
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
    async fn look(&self, settings: &Settings, spec: &Spec, store: &Store, report: StatusReport)
    -> Result<StatusReport>;

    /// The ways into what runs; `None` when nothing does.
    fn access(&self, state: &ClusterState, folder: &Path) -> Option<Access>;
}

/// What runs the nodes of a spec's cluster.
///
/// # Errors
/// When its provider is unknown, or of a kind that nothing here runs yet.
pub(super) fn of(spec: &Spec) -> Result<&'static dyn Backend> {
    let name = spec.provider.name();
    match providers::find(name)?.capability().kind {
        ProviderKind::Host => Ok(&Hosts),
        ProviderKind::Platform => Err(Error::new(ErrorKind::Unsupported, format!("use the provider `{name}`"))
            .because("it is a platform, and nothing here runs a cluster on one yet")),
    }
}
