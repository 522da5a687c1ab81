//! What a cluster runs on: hosts, or a platform. Every verb is written once, against this.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::cluster::options::{DownOptions, UpOptions};
use crate::cluster::outcome::{HostAffectedPaths, Proof, Verified};
use crate::cluster::pages::choose_pages;
use crate::cluster::report::StatusReport;
use crate::cluster::settings::Settings;
use crate::engine::{Ledger, Pipeline, Planned, Replan, World};
use crate::error::Result;
use crate::event::{Bus, Endpoint};
use crate::name::Key;
use crate::plan::{Goal, Observed, Plan};
use crate::provider::{Offer, ResourceRequest, Start};
use crate::spec::{Loaded, Spec};
use crate::state::{ClusterState, Pages, Store};

/// How closely a cluster is inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Only what runs.
    Running,
    /// What runs, and whether it was prepared as it should be.
    Stages,
    /// That, and all checks. Of slow ones, a result of at most this age is enough while nothing was restarted.
    Checks { at_most: Duration },
}

/// What a command opens a cluster's substrate with.
pub(super) struct Opening<'a> {
    pub(super) settings: &'a Settings,
    pub(super) spec: &'a Spec,
    /// The spec with its places, where it is to be brought up or planned: what it sends is read, and what cannot be is
    /// refused.
    pub(super) loaded: Option<&'a Loaded>,
    /// The options of the `up` that will change the cluster.
    pub(super) up: Option<&'a UpOptions>,
    pub(super) known: &'a ClusterState,
    /// The folder for connections.
    pub(super) connections: &'a Path,
    /// The folder with the cluster's credentials; missing ones are generated there.
    pub(super) credentials: &'a Path,
    pub(super) look: Look,
}

impl<'a> Opening<'a> {
    /// For a cluster that has state.
    pub(super) fn of(settings: &'a Settings, spec: &'a Spec, store: &'a Store, look: Look) -> Self {
        let (folder, known) = (store.folder(), store.state());
        Self { settings, spec, loaded: None, up: None, known, connections: folder, credentials: folder, look }
    }

    /// The ports of these pages on this machine: those of the state, and for an `up` new ones of the others.
    pub(super) fn pages(&self, names: &[&str]) -> Result<Pages> {
        let mut pages = self.known.pages().cloned().unwrap_or_default();
        if self.up.is_some() {
            let others: Vec<&str> = names.iter().copied().filter(|name| !pages.contains_key(*name)).collect();
            pages.extend(choose_pages(&others)?);
        }
        Ok(pages)
    }
}

/// What the provider chose for what the spec leaves open.
#[derive(Debug, Default)]
pub(super) struct Resolution {
    /// The hardware of hosts that do not exist yet.
    pub(super) offers: Vec<Offer>,
    /// When hosts become available, if not now.
    pub(super) start: Option<Start>,
    /// When hosts end, if known.
    pub(super) end: Option<Timestamp>,
    /// What the user should know; it was reported, too.
    pub(super) notes: Vec<String>,
}

/// Something that the user should know before a plan is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Remark {
    Note(String),
    Warning(String),
}

impl Remark {
    /// Reports it.
    pub(super) fn report(&self, events: &Bus) {
        match self {
            Self::Note(text) => events.note(text),
            Self::Warning(text) => events.warn(text),
        }
    }

    /// Its text.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Note(text) | Self::Warning(text) => text,
        }
    }
}

/// The hosts or the platform of one cluster.
#[async_trait(?Send)]
pub(super) trait Substrate: World + Replan {
    /// Prepares to end all nodes and keep what they ran on.
    fn to_stop(&mut self) {}

    /// Prepares to remove everything.
    fn to_remove(&mut self, _options: DownOptions) {}

    /// Asks the provider for what the spec leaves open, and reports its notes. An `up` waits for capacity, and asks a
    /// person whether the cluster may be where the spec says.
    async fn resolve(&mut self, up: Option<&UpOptions>) -> Result<Resolution>;

    /// The resources that the spec asks for, as last resolved.
    fn requests(&self) -> Result<Vec<ResourceRequest>>;

    /// Everything that the spec asks for.
    ///
    /// # Errors
    /// If what was found cannot do it.
    async fn goal(&self, loaded: &Loaded, offers: &[Offer], known: &ClusterState, observed: &Observed) -> Result<Goal>;

    /// The goal that ends all nodes, given what was found.
    fn goal_of_stop(&self, observed: &Observed) -> Result<Goal>;

    /// Reports hosts that were restarted since the cluster was started.
    fn report_restarts(&self, _known: &ClusterState) {}

    /// What the user should know before this plan is carried out.
    async fn remarks(&self, known: &ClusterState, plan: &Plan) -> Result<Vec<Remark>>;

    /// What a plan may change on each host.
    fn affected_paths(&self, _known: &ClusterState, _plan: &Plan) -> Result<Vec<HostAffectedPaths>> {
        Ok(Vec::new())
    }

    /// Whether Ray's head starts with this plan, or has yet to start.
    async fn starts_head(&self, plan: &Plan) -> Result<bool> {
        Ok(plan.operations.iter().any(|operation| operation.key == Key::project(0)))
    }

    /// Carries out what the goal needs, and replans where that helps. Returns the number of operations.
    async fn carry_out(
        &self,
        pipeline: &Pipeline<'_>,
        loaded: &Loaded,
        offers: Vec<Offer>,
        observed: Observed,
        goal: Goal,
    ) -> Result<usize>;

    /// Looks again at what checks are about, where they are part of an inspection.
    async fn inspect_again(&self, _known: &ClusterState) -> Result<()> {
        Ok(())
    }

    /// Runs all checks that an inspection has not run, reports the results, and decides. As the end of an `up`, `before`
    /// is the state that it began with: what changed is brought to nodes that run, and what holds now is recorded.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::NotReady`] when a check failed, or did not run at all.
    async fn verify(&self, ledger: &Ledger, before: Option<&ClusterState>) -> Result<Verified>;

    /// Whether the checks that passed at that time still hold: no node was started since, as far as one can see.
    fn is_ready_since(&self, ready: Option<Timestamp>) -> bool;

    /// The URLs of a cluster that is ready.
    fn endpoints(&self, known: &ClusterState) -> Vec<Endpoint>;

    /// Completes a report by an inspection.
    async fn inspect(&self, known: &ClusterState, report: StatusReport) -> Result<StatusReport>;

    /// Proves that nothing is left, after `first` was the plan that removed it.
    ///
    /// # Errors
    /// If something is left.
    async fn prove_gone(
        &self,
        first: &Planned,
        known: &ClusterState,
        options: DownOptions,
        proof: &mut Proof,
    ) -> Result<()>;
}
