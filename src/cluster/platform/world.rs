//! The world of a cluster on a platform: objects, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::cluster::pods::Pods;
use crate::cluster::settings::Settings;
use crate::engine::{Cancel, Ledger, World};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{Key, Tag};
use crate::plan::{Action, Observed, Operation};
use crate::provider::{Recorder as _, ResourceRequest};
use crate::render::Library;
use crate::spec::Spec;
use crate::state::{ClusterState, PlatformNotes};

/// The real [`World`] of a cluster on a platform.
pub(super) struct ObjectWorld {
    pub(super) pods: Arc<Pods>,
    /// Templates.
    pub(super) library: Library,
    /// The key of the object that runs the cluster, and the notes that it has from now on; `None` where nothing is
    /// made or changed.
    pub(super) runs: Option<(Key, PlatformNotes)>,
    cancel: Cancel,
}

impl ObjectWorld {
    /// Opens the world of a cluster, of which nothing is asked yet.
    pub(super) fn open(settings: &Settings, spec: &Spec) -> Result<Self> {
        let pods = Pods::new(settings.provider(spec)?, settings.scope(&spec.name));
        Ok(Self { pods, library: settings.library.clone(), runs: None, cancel: settings.cancel.clone() })
    }

    async fn wait(&self, tag: &Tag, request: &ResourceRequest, id: &str) -> Result<()> {
        let doing = format!("wait for {}", tag.key.display_name());
        self.cancel.unless_pressed(&doing, self.pods.provider().wait_usable(tag, request, id)).await
    }

    fn note(&self, key: &Key, ledger: &Ledger) -> Result<()> {
        match &self.runs {
            Some((runs, notes)) if runs == key => ledger.note_platform(key, notes.clone()),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl World for ObjectWorld {
    async fn observe(&self, _known: &ClusterState) -> Result<Observed> {
        Ok(Observed { resources: self.pods.provider().observe(self.pods.scope()).await?, ..Observed::default() })
    }

    async fn perform(&self, operation: &Operation, ledger: &Ledger) -> Result<()> {
        let tag = self.pods.scope().tag(&operation.key);
        match &operation.action {
            Action::Acquire { request } => {
                let acquired = self.pods.provider().acquire(&tag, request, ledger).await?;
                ledger.exists(&operation.key, &acquired.id).await?;
                self.note(&operation.key, ledger)?;
                self.wait(&tag, request, &acquired.id).await
            }
            Action::Await { request, id } => self.wait(&tag, request, id).await,
            Action::Update { request, id } => {
                self.pods.platform()?.update(&tag, request, id).await?;
                self.note(&operation.key, ledger)?;
                self.wait(&tag, request, id).await
            }
            Action::Release { resource } => self.pods.provider().release(self.pods.scope(), resource).await,
            Action::Prepare { .. }
            | Action::SetFirewall { .. }
            | Action::Fill { .. }
            | Action::Deploy { .. }
            | Action::StopProject { .. }
            | Action::Clean { .. } => Err(Error::new(ErrorKind::Unsupported, operation.action.name())
                .because("a cluster on a platform has no hosts")),
        }
    }

    fn consistency_delay(&self) -> Duration {
        self.pods.provider().capability().consistency_delay
    }
}
