//! What every verb is given, and what is refused before a cluster is changed.

use std::path::PathBuf;

use crate::engine::Cancel;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Bus;
use crate::name::{ClusterName, Owner, Scope};
use crate::provider::{Context, Provider, UserEnvironment};
use crate::providers;
use crate::render::Library;
use crate::spec::Spec;
use crate::state::{ClusterState, ItemKind, Paths};

/// What every verb is given; the command line makes it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The user's folders.
    pub paths: Paths,
    /// Whose clusters they are.
    pub owner: Owner,
    /// Playbooks and templates.
    pub library: Library,
    /// gpucl itself, to be started as an agent.
    pub program: PathBuf,
    /// The environment that whatever outlives a command may have.
    pub environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// The environment of programs on a host that is this machine.
    pub host_environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// What the user has set up around gpucl.
    pub user_environment: UserEnvironment,
    /// Who is told.
    pub events: Bus,
    /// Whether to go on.
    pub cancel: Cancel,
}

impl Settings {
    /// Whose and which cluster.
    pub fn scope(&self, cluster: &ClusterName) -> Scope {
        Scope { owner: self.owner.clone(), cluster: cluster.clone() }
    }

    /// What a provider is opened with.
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

/// Refuses a spec from another file under the name of a cluster that runs.
pub(super) fn same_file(known: &ClusterState, path: Option<&str>) -> Result<()> {
    let running = || known.items.values().any(|item| item.kind == ItemKind::Project);
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

/// Refuses to change the provider or the runtime under a cluster: what the one made, the other would not see.
pub(super) fn same_kind(known: &ClusterState, spec: &Spec) -> Result<()> {
    let Some(before) = known.spec.as_ref().filter(|_| !known.items.is_empty()) else { return Ok(()) };
    let of = |spec: &Spec| (spec.provider.name().to_owned(), spec.runtime.name());
    if of(before) == of(spec) {
        return Ok(());
    }
    let ((provider, runtime), (new_provider, new_runtime)) = (of(before), of(spec));
    Err(Error::new(ErrorKind::Usage, format!("bring up the cluster {}", known.name))
        .because(format!(
            "it is there with the provider `{provider}` and the runtime `{runtime}`, and the spec says `{new_provider}` and `{new_runtime}`"
        ))
        .hint(format!("gpucl down -c {}   # then up again; or give the new one another `name:`", known.name)))
}
