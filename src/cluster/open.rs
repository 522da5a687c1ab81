//! The settings shared by all verbs, and the checks that refuse a spec before anything is changed.

use std::path::PathBuf;

use crate::engine::Cancel;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Bus;
use crate::name::{ClusterName, Owner, Scope};
use crate::provider::{Context, Provider, UserEnvironment};
use crate::providers;
use crate::render::Library;
use crate::runtime::project;
use crate::spec::{Loaded, Spec};
use crate::state::{ClusterState, Item, ItemKind, Notes, Paths};

/// The settings of a command, built by the command line and passed to every verb.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The user's folders.
    pub paths: Paths,
    /// The owner of the clusters.
    pub owner: Owner,
    /// Playbooks and templates.
    pub library: Library,
    /// The gpucl executable, to start an agent with.
    pub program: PathBuf,
    /// The environment variables passed to processes that outlive the command.
    pub environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// The environment variables of programs on a host that is this machine.
    pub host_environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// The caller's home, XDG folders and environment variables.
    pub user_environment: UserEnvironment,
    /// Where events are sent.
    pub events: Bus,
    /// Cancellation by Ctrl-C.
    pub cancel: Cancel,
}

impl Settings {
    /// The scope of a cluster of this owner.
    pub fn scope(&self, cluster: &ClusterName) -> Scope {
        Scope { owner: self.owner.clone(), cluster: cluster.clone() }
    }

    /// The context to open a provider with.
    pub fn context(&self) -> Context {
        Context {
            data_dir: self.paths.data.clone(),
            cache_dir: self.paths.cache.clone(),
            runtime_dir: self.paths.runtime.clone(),
            clusters_dir: self.paths.clusters(),
            user_environment: self.user_environment.clone(),
            events: self.events.clone(),
        }
    }

    /// Opens the provider of a spec.
    pub fn provider(&self, spec: &Spec) -> Result<Box<dyn Provider>> {
        providers::find(spec.provider.name())?.open(&spec.provider.settings(), &self.context())
    }
}

/// Refuses a spec from another file if a cluster of that name is running.
pub(super) fn same_file(known: &ClusterState, path: Option<&str>) -> Result<()> {
    let is_running = |item: &Item| item.kind == ItemKind::Project || matches!(item.notes, Notes::Platform(_));
    let running = || known.items.values().any(is_running);
    match (&known.spec_path, path) {
        (Some(before), Some(now)) if before != now && running() => {
            Err(Error::new(ErrorKind::Usage, format!("bring up the cluster {} from {now}", known.name))
                .because(format!("a cluster of that name runs from another spec: {before}"))
                .hint(format!(
                    "give one of them another `name:`, or replace the running one: gpucl up {now} --new-spec"
                )))
        }
        _ => Ok(()),
    }
}

/// Refuses values for playbooks that these cannot use, before any host is reached.
pub(super) fn settings_fit(settings: &Settings, loaded: &Loaded) -> Result<()> {
    let wrong = project::wrong_settings(&loaded.spec, &settings.library)?;
    if wrong.is_empty() { Ok(()) } else { Err(loaded.places.errors(wrong)) }
}

/// Refuses to change the provider or runtime of an existing cluster: the new one would not see what the old one made.
pub(super) fn same_kind(known: &ClusterState, spec: &Spec) -> Result<()> {
    let Some(before) = known.spec.as_ref().filter(|_| !known.items.is_empty()) else { return Ok(()) };
    let of = |spec: &Spec| (spec.provider.name().to_owned(), spec.runtime.name());
    if of(before) == of(spec) {
        return Ok(());
    }
    let ((provider, runtime), (new_provider, new_runtime)) = (of(before), of(spec));
    Err(Error::new(ErrorKind::Usage, format!("bring up the cluster {}", known.name))
        .because(format!(
            "it has the provider `{provider}` and the runtime `{runtime}`, but the spec says `{new_provider}` and \
             `{new_runtime}`"
        ))
        .hint(format!("gpucl down -c {}   # then up again; or give the new one another `name:`", known.name)))
}
