//! A cluster on hosts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::capacity::CapacityWait;
use super::connector::HostConnector;
use super::fleet::Fleet;
use super::layout::{HostContent, Layout};
use super::supply::Supply;
use crate::cluster::local_files::{self, LocalFiles};
use crate::cluster::options::DownOptions;
use crate::cluster::settings::Settings;
use crate::cluster::substrate::Opening;
use crate::engine::Cancel;
use crate::error::Result;
use crate::event::Bus;
use crate::name::{Key, Scope};
use crate::render::Library;
use crate::runtime;
use crate::runtime::project::{CleanOptions, HostInput, ProjectRuntime};
use crate::secret::Secrets;
use crate::spec::{Loaded, Spec, external_credentials, tracking_login};
use crate::state::{ClusterState, Pages};

/// The pages of a cluster on hosts.
const PAGES: [&str; 8] = ["dashboard", "grafana", "prometheus", "object-store", "jupyter", "mlflow", "serve", "client"];

/// A cluster on hosts: everything that does not change while a command runs, its [`Supply`] and its [`Fleet`].
pub(super) struct OnHosts {
    pub(super) scope: Scope,
    pub(super) spec: Spec,
    pub(super) library: Library,
    /// The cluster's credentials, or why they cannot be read.
    pub(super) secrets: Result<Secrets>,
    /// The files of this machine that hosts should have; `None` where nothing is filled.
    pub(super) files: Option<Vec<LocalFiles>>,
    /// The ports of the pages on this machine: chosen once and kept.
    pub(super) pages: Pages,
    /// How hosts are cleaned when everything is removed; `None` for a command that removes only what it must.
    pub(super) removal: Option<DownOptions>,
    pub(super) events: Bus,
    pub(super) cancel: Cancel,
    pub(super) supply: Supply,
    pub(super) fleet: Fleet,
    pub(super) wait: CapacityWait,
}

impl OnHosts {
    /// Opens a cluster on hosts; connects to none yet.
    ///
    /// # Errors
    /// If the spec has what its hosts cannot use, or credentials or files cannot be read.
    pub(super) fn open(opening: &Opening<'_>, connector: Arc<dyn HostConnector>) -> Result<Self> {
        let Opening { settings, spec, look, .. } = *opening;
        let files = match opening.loaded {
            Some(loaded) => {
                playbooks_fit(settings, loaded)?;
                Some(local_files::read(spec, &settings.events)?)
            }
            None => None,
        };
        let provider = settings.provider(spec)?;
        let (events, cancel) = (settings.events.clone(), settings.cancel.clone());
        let (asked, capacity) = match opening.up {
            Some(up) => (up.wait_capacity, spec.capacity.as_ref()),
            None => (None, None),
        };
        let wait = CapacityWait::new(asked, capacity, provider.capability().poll, &events, &cancel);
        let scope = settings.scope(&spec.name);
        Ok(Self {
            fleet: Fleet::new(scope.clone(), spec, provider.as_ref(), connector, settings.paths.clone(), look),
            supply: Supply::new(provider, scope.clone(), spec, events.clone()),
            scope,
            spec: spec.clone(),
            library: settings.library.clone(),
            secrets: with_external(spec, secrets(spec, opening.credentials)?),
            files,
            pages: opening.pages(&PAGES)?,
            removal: None,
            events,
            cancel,
            wait,
        })
    }

    /// The runtime of the cluster's nodes.
    pub(super) fn runtime(&self) -> &'static dyn ProjectRuntime {
        runtime::of(self.spec.runtime)
    }

    /// The keys of the spec's hosts, in its order.
    pub(super) fn hosts(&self) -> &[Key] {
        self.fleet.hosts()
    }

    /// What the hosts should hold, from their facts as found now or recorded before.
    pub(super) fn layout(&self, known: &ClusterState) -> Layout<'_> {
        self.layout_on(self.fleet.survey(known))
    }

    fn layout_on(&self, hosts: Vec<HostInput>) -> Layout<'_> {
        Layout {
            scope: &self.scope,
            spec: &self.spec,
            library: &self.library,
            secrets: self.secrets.as_ref().map_err(Clone::clone),
            files: self.files.as_ref().map(|files| files.iter().map(|files| files.bundle.clone()).collect()),
            addresses: self.supply.addresses(),
            hosts,
        }
    }

    /// What the hosts should hold, as last brought up; empty if the state is incomplete.
    pub(super) fn recorded_content(&self, known: &ClusterState) -> BTreeMap<Key, HostContent> {
        let recorded = self.fleet.recorded(known);
        recorded.and_then(|hosts| self.layout_on(hosts).content(known.pages())).unwrap_or_default()
    }

    /// How a host is cleaned.
    pub(super) fn clean_options(&self) -> CleanOptions {
        match self.removal {
            Some(DownOptions { keep_data, purge, .. }) => CleanOptions { ends_cluster: true, keep_data, purge },
            None => CleanOptions::default(),
        }
    }

    /// Whether a host's content is deleted with the host, so that cleaning is unnecessary.
    pub(super) fn leaves_no_trace(&self) -> bool {
        self.removal.is_some() && self.supply.makes_hosts()
    }
}

/// Refuses values for playbooks that these cannot use, before any host is reached.
pub(in crate::cluster) fn playbooks_fit(settings: &Settings, loaded: &Loaded) -> Result<()> {
    let wrong = runtime::wrong_settings(&loaded.spec, &settings.library)?;
    if wrong.is_empty() { Ok(()) } else { Err(loaded.places.errors(wrong)) }
}

/// The cluster's credentials; missing ones are generated.
fn secrets(spec: &Spec, folder: &Path) -> Result<Secrets> {
    match runtime::of(spec.runtime).has_services() || spec.own_store().is_some() || spec.own_mlflow() {
        true => crate::secret::ensure_secrets(folder),
        false => Ok(Secrets::of_ray(crate::secret::ensure_ray_token(folder)?)),
    }
}

/// These, with the credentials of the spec's external services. That they cannot be read matters only where hosts get them.
fn with_external(spec: &Spec, secrets: Secrets) -> Result<Secrets> {
    let mut secrets = secrets;
    if let Some(store) = spec.external_store() {
        secrets.external = Some(external_credentials(&store.credentials_file, &store.profile)?);
    }
    if let Some(store) = spec.store_at_end() {
        secrets.at_end = Some(external_credentials(&store.credentials_file, &store.profile)?);
    }
    if let Some(file) = spec.external_mlflow().and_then(|mlflow| mlflow.credentials_file) {
        secrets.external_mlflow = tracking_login(&file)?;
    }
    Ok(secrets)
}
