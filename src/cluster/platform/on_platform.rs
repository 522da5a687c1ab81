//! A cluster on a platform: objects, and nothing else.

use std::path::PathBuf;
use std::sync::Arc;

use super::goal;
use super::preparation;
use crate::cluster::machines::Pods;
use crate::cluster::settings::Settings;
use crate::cluster::substrate::Opening;
use crate::engine::Ledger;
use crate::error::Result;
use crate::name::{Key, Scope};
use crate::plan::{Action, Plan, ResourceAction};
use crate::provider::platform::{ClusterRequest, Consequences, Platform};
use crate::provider::{Provider, ResourceRequest};
use crate::spec::Spec;
use crate::state::{Pages, PlatformNotes};

/// The pages that are forwarded from the head.
const PAGES: [&str; 3] = ["dashboard", "serve", "client"];

/// A cluster on a platform.
pub(super) struct OnPlatform {
    pub(super) settings: Settings,
    pub(super) spec: Spec,
    /// The folder with the cluster's token.
    pub(super) credentials: PathBuf,
    pub(super) pods: Arc<Pods>,
    /// What the platform is asked for.
    pub(super) request: ClusterRequest,
    /// The ports of the pages on this machine.
    pub(super) pages: Pages,
}

impl OnPlatform {
    /// Opens a cluster, of which nothing is asked yet.
    ///
    /// # Errors
    /// If the spec has what clusters on platforms do not have, or what it sends cannot be read.
    pub(super) fn open(opening: &Opening<'_>) -> Result<Self> {
        let Opening { settings, spec, .. } = *opening;
        let request = match opening.loaded {
            Some(loaded) => {
                let request = goal::request(loaded, false)?;
                let preparation = preparation::with_files(spec, &settings.library, &settings.events)?;
                ClusterRequest { preparation, ..request }
            }
            None => goal::of_spec(spec, false),
        };
        if opening.up.is_some() {
            crate::secret::ensure_ray_token(opening.credentials)?;
        }
        Ok(Self {
            settings: settings.clone(),
            spec: spec.clone(),
            credentials: opening.credentials.to_owned(),
            pods: Pods::new(settings.provider(spec)?, settings.scope(&spec.name)),
            request,
            pages: opening.pages(&PAGES)?,
        })
    }

    pub(super) fn scope(&self) -> &Scope {
        self.pods.scope()
    }

    pub(super) fn provider(&self) -> &dyn Provider {
        self.pods.provider()
    }

    pub(super) fn platform(&self) -> Result<&dyn Platform> {
        self.pods.platform()
    }

    /// Adds to the request what the platform has for the cluster: its Prometheus.
    pub(super) async fn complete_request(&mut self) -> Result<()> {
        if self.spec.has_existing_prometheus() {
            self.request.prometheus = Some(self.platform()?.prometheus().await?);
        }
        Ok(())
    }

    /// The objects to have, in order. The last one runs the nodes.
    pub(super) fn objects(&self) -> Result<Vec<ResourceRequest>> {
        self.platform()?.objects(self.scope(), &self.request)
    }

    /// What the updates of a plan change, and do to nodes that run.
    pub(super) async fn consequences(&self, plan: &Plan) -> Result<Consequences> {
        let mut all = Consequences::default();
        for operation in &plan.operations {
            if let Action::Resource(ResourceAction::Update { request, id }) = &operation.action {
                let tag = self.scope().tag(&operation.key);
                let of_one = self.platform()?.consequences(&tag, request, id).await?;
                all.lines.extend(of_one.lines);
                all.restarts_head |= of_one.restarts_head;
            }
        }
        Ok(all)
    }

    /// Records what runs from now on, if this object runs the nodes.
    pub(super) fn note(&self, key: &Key, ledger: &Ledger) -> Result<()> {
        if self.objects()?.last().is_none_or(|last| last.key != *key) {
            return Ok(());
        }
        let groups = std::iter::once(&self.request.head).chain(&self.request.workers).cloned().collect();
        ledger.note_platform(key, PlatformNotes { groups, stopped: self.request.stopped, pages: self.pages.clone() })
    }

    /// Shows Ray's dashboards in the Grafana beside the platform's Prometheus; or no more, where the spec has none any
    /// more.
    pub(super) async fn show_dashboards(&self, before: Option<&Spec>) {
        let is_wanted = self.request.prometheus.is_some();
        if !is_wanted && !before.is_some_and(Spec::has_existing_prometheus) {
            return;
        }
        let version = is_wanted.then_some(self.request.ray_version.as_str());
        let shown = async { self.platform()?.show_dashboards(self.scope(), version).await };
        if let Err(error) = shown.await {
            self.settings.events.note(format!("warning: failed to {error}"));
        }
    }
}
