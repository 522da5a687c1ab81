//! A cluster opened for a change: its lock, its journal, its world.

use std::path::PathBuf;

use super::processes::{HostWorld, HostWorldConfig};
use crate::agent::AgentStart;
use crate::engine::{Cancel, Ledger, Pipeline};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Bus;
use crate::name::{ClusterName, Owner, Scope};
use crate::playbook::Stage;
use crate::provider::{Context, Provider, Surroundings};
use crate::providers;
use crate::render::Library;
use crate::runtime::native;
use crate::spec::Spec;
use crate::state::{ClusterState, ItemKind, Paths, Store};

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
    /// The environment that the agent and the nodes may have.
    pub environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// What the user has set up around gpucl.
    pub surroundings: Surroundings,
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
            surroundings: self.surroundings.clone(),
            events: self.events.clone(),
        }
    }

    /// Opens the provider of a spec.
    pub fn provider(&self, spec: &Spec) -> Result<Box<dyn Provider>> {
        providers::find(spec.provider.name())?.open(&spec.provider.settings(), &self.context())
    }

    /// The world of a cluster.
    pub(super) fn world(&self, spec: &Spec, provider: Box<dyn Provider>, stage: Option<Stage>) -> HostWorld {
        HostWorld::new(HostWorldConfig {
            scope: self.scope(&spec.name),
            provider,
            runtime_dir: self.paths.runtime.clone(),
            agent: AgentStart {
                program: self.program.clone(),
                environment: self.environment.clone(),
                log: self.paths.cluster(&spec.name).join("agent.log"),
            },
            stage,
            stop_grace: spec.timeouts.stop.0,
            processes: native::ClusterProcesses::new(&self.scope(&spec.name), &self.paths.data),
            events: self.events.clone(),
            cancel: self.cancel.clone(),
        })
    }
}

/// A cluster's journal and world in use.
pub struct Opened {
    /// The journal.
    pub ledger: Ledger,
    /// What is acted upon.
    pub world: HostWorld,
}

impl Opened {
    /// The pipe.
    pub fn pipeline<'a>(&'a self, settings: &'a Settings) -> Pipeline<'a> {
        Pipeline { world: &self.world, ledger: &self.ledger, events: &settings.events, cancel: &settings.cancel }
    }

    /// Gives the store back.
    pub(super) fn into_store(self) -> Result<Store> {
        let Self { ledger, world } = self;
        drop(world);
        ledger
            .into_store()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "close the journal").because("something holds it still"))
    }
}

/// Refuses a spec from another file under the name of a cluster that runs.
pub(super) fn same_file(settings: &Settings, known: &ClusterState, path: Option<&str>) -> Result<()> {
    let running = || {
        known.items.values().any(|item| item.kind == ItemKind::Project)
            || !native::observe_nodes(&settings.scope(&known.name)).is_empty()
    };
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
