//! The backend trait. The verbs take the lock and open the store, and leave the rest to the backend.

use std::path::Path;

use async_trait::async_trait;

use crate::cluster::options::{DownOptions, UpOptions};
use crate::cluster::outcome::{Planned, Proof, UpOutcome, Verified};
use crate::cluster::report::StatusReport;
use crate::cluster::settings::Settings;
use crate::error::Result;
use crate::ray::Access;
use crate::runtime::project::ByHand;
use crate::spec::{Loaded, NodeSpec, Spec};
use crate::state::{ClusterState, Store};

/// Everything that can be done with a cluster.
#[async_trait(?Send)]
pub(in crate::cluster) trait Backend {
    /// Brings the cluster to what its spec says, and verifies it.
    async fn up(
        &self,
        settings: &Settings,
        loaded: &Loaded,
        options: &UpOptions,
        known: Option<Store>,
    ) -> Result<UpOutcome>;

    /// Works out what `up` would do. Writes nothing but temporary connection files.
    async fn plan(&self, settings: &Settings, loaded: &Loaded, known: Option<Store>) -> Result<Planned>;

    /// Runs all checks again.
    async fn verify(&self, settings: &Settings, spec: &Spec, store: Store) -> Result<Verified>;

    /// Ends all nodes and returns the resources that are kept.
    async fn stop(&self, settings: &Settings, spec: &Spec, store: Store) -> Result<Vec<String>>;

    /// Stops, starts or kills one worker, and disturbs no other node.
    async fn by_hand(
        &self,
        settings: &Settings,
        spec: &Spec,
        store: Store,
        worker: &NodeSpec,
        by_hand: ByHand,
    ) -> Result<()>;

    /// Removes everything of the cluster, and proves that nothing is left.
    async fn down(&self, settings: &Settings, spec: &Spec, store: Store, options: DownOptions) -> Result<Proof>;

    /// Whether traces of the spec's runtime are found on the hosts, for a cluster whose state is lost.
    async fn leaves_traces(&self, settings: &Settings, spec: &Spec, store: &Store) -> bool;

    /// Completes a report from the state alone.
    fn report(&self, state: &ClusterState, report: StatusReport) -> StatusReport;

    /// Completes a report by an inspection of the hosts.
    async fn inspect(
        &self,
        settings: &Settings,
        spec: &Spec,
        store: &Store,
        report: StatusReport,
    ) -> Result<StatusReport>;

    /// The addresses of a running cluster; `None` when nothing runs.
    fn access(&self, state: &ClusterState, folder: &Path) -> Option<Access>;
}
