//! A cluster opened for a change: its lock, its journal, its world.

use std::path::PathBuf;

use super::world::{HostWorld, HostWorldConfig};
use crate::agent::AgentStart;
use crate::engine::{Cancel, Ledger, Pipeline};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Bus;
use crate::name::{ClusterName, Key, Owner, Scope};
use crate::plan::{Desired, Machine, Preparation, desired};
use crate::playbook::Stage;
use crate::provider::{self, Context, HostRequest, Provider};
use crate::render::Library;
use crate::spec::{Loaded, Spec};
use crate::state::{Paths, Store};

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

    /// Opens the provider of a spec.
    pub fn provider(&self, spec: &Spec) -> Result<Box<dyn Provider>> {
        let context = Context {
            data_dir: self.paths.data.clone(),
            cache_dir: self.paths.cache.clone(),
            runtime_dir: self.paths.runtime.clone(),
            events: self.events.clone(),
        };
        provider::find(spec.provider.name())?.open(&spec.provider.settings(), &context)
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

/// Works out all that a spec asks for; pure but for the provider's read-only offers.
pub(super) async fn desired_of(
    loaded: &Loaded,
    scope: &Scope,
    provider: &dyn Provider,
    stage: &Stage,
) -> Result<Desired> {
    let spec = &loaded.spec;
    let offers = provider.offers().await?;
    let mut resources = Vec::new();
    let mut machines = Vec::new();
    let mut preparations = Vec::new();
    for (index, settings) in spec.hosts.iter().enumerate() {
        let request = HostRequest { key: Key::host(index), settings: settings.clone() };
        resources.extend(provider.expand(scope, &request)?);
        let offer = offers.get(index).or(offers.first());
        machines.push((
            request.key.clone(),
            offer.map_or_else(Machine::default, |offer| Machine {
                cpus: offer.cpus,
                memory: offer.memory,
                gpus: offer.gpus.iter().map(|gpu| gpu.count).sum(),
            }),
        ));
        preparations.push(Preparation { host: request.key, digest: stage.digest() });
    }
    let nodes = desired(spec, &machines).map_err(|(path, sentence)| loaded.places.error(&path, sentence))?;
    Ok(Desired { resources, preparations, agent: Some(crate::engine::agent_digest()), nodes, projects: Vec::new() })
}

/// Refuses a spec from another file under the name of a cluster that runs.
pub(super) fn same_file(known: &crate::state::ClusterState, path: Option<&str>, running: bool) -> Result<()> {
    match (&known.spec_path, path) {
        (Some(before), Some(now)) if before != now && running => {
            Err(Error::new(ErrorKind::Usage, format!("bring up the cluster {} from {now}", known.name))
                .because(format!("a cluster of that name runs from another spec: {before}"))
                .hint(format!(
                    "give one of them another `name:`, or replace the running one: gpucl up {now} --new-spec"
                )))
        }
        _ => Ok(()),
    }
}
