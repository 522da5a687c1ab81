//! The world in memory. What exists in it exists until somebody removes just that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gpucl::engine::{Ledger, World};
use gpucl::error::{Error, ErrorKind, Result};
use gpucl::name::Key;
use gpucl::plan::{
    Action, Change, Health, NodeChange, NodeRequest, Observed, ObservedNode, ObservedProject, Operation,
    ProjectRequest, Remnant,
};
use gpucl::provider::{ObservedResource, Recorder as _, ResourceState};
use gpucl::state::{ClusterState, ItemKind, ItemState};
use tokio::sync::Notify;

/// Where in an effect the crash comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Before,
    Done,
    Journalled,
}

/// Bugs that the test must catch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// Takes an intent in the journal for the thing itself.
    BelievesWhatWasOnlyIntended,
    /// Looks only for ids that the journal has.
    SeesOnlyWhatTheJournalKnows,
    /// Shows one of several.
    HidesDuplicates,
    /// Removes by an id that it forgot to write down.
    LosesIds,
}

/// What exists.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) resources: Vec<ObservedResource>,
    prepared: BTreeMap<Key, String>,
    firewalls: BTreeMap<Key, String>,
    filled: BTreeMap<Key, String>,
    pub(crate) projects: Vec<ObservedProject>,
    /// What a deployment delivers: what is wanted now.
    pub(crate) wanted: Vec<ProjectRequest>,
    made: usize,
    /// How long the next new resource stays unseen.
    pub(crate) late: Option<Duration>,
    unseen: BTreeMap<String, Instant>,
}

impl Machine {
    /// Makes a second one of every resource.
    pub(crate) fn double(&mut self) {
        self.resources.extend_from_within(..);
        for (number, resource) in self.resources.iter_mut().enumerate().skip(1) {
            resource.id = format!("double-{number}");
        }
    }
}

#[derive(Debug, Default)]
struct Control {
    /// The number of the effect to crash at, and where in it.
    crash: Option<(usize, Phase)>,
    /// The effects begun, by their kinds.
    effects: Vec<&'static str>,
    /// The process is dead: later calls never return.
    dead: bool,
}

/// A handle to the one machine.
#[derive(Clone)]
pub(crate) struct MemoryWorld {
    machine: Arc<Mutex<Machine>>,
    control: Arc<Mutex<Control>>,
    pub(crate) crashed: Arc<Notify>,
    bug: Bug,
}

impl MemoryWorld {
    pub(crate) fn new(bug: Bug) -> Self {
        Self { machine: Arc::default(), control: Arc::default(), crashed: Arc::default(), bug }
    }

    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap()
    }

    /// From now on crash there, or nowhere.
    pub(crate) fn crash_at(&self, crash: Option<(usize, Phase)>) {
        *self.control.lock().unwrap() = Control { crash, ..Control::default() };
    }

    /// The effects since then.
    pub(crate) fn effects(&self) -> Vec<&'static str> {
        self.control.lock().unwrap().effects.clone()
    }

    /// The process is dead: nothing here goes on.
    async fn die(&self) {
        self.control.lock().unwrap().dead = true;
        self.crashed.notify_one();
        std::future::pending::<()>().await;
    }

    async fn unless_dead(&self) {
        if self.control.lock().unwrap().dead {
            self.crashed.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// The effect itself; returns the id of what was made.
    fn effect(&self, operation: &Operation, ledger: &Ledger) -> Result<Option<String>> {
        let mut machine = self.machine();
        machine.made += 1;
        let id = format!("{}-{}", operation.key, machine.made);
        match &operation.action {
            Action::Acquire { request } => {
                machine.resources.push(ObservedResource {
                    digest: (request.settings["in_place"] == true).then(|| request.digest()),
                    key: operation.key.clone(),
                    kind: request.kind.clone(),
                    id: id.clone(),
                    // As after a crash while it was waited for.
                    state: match request.settings["form"] == "slow" {
                        true => ResourceState::Coming,
                        false => ResourceState::Usable,
                    },
                    adopted: false,
                    until: None,
                    detail: String::new(),
                });
                if let Some(late) = machine.late.take() {
                    machine.unseen.insert(id.clone(), Instant::now() + late);
                }
            }
            Action::Await { id, .. } => {
                for found in machine.resources.iter_mut().filter(|found| found.id == *id) {
                    found.state = ResourceState::Usable;
                }
                return Ok(None);
            }
            Action::Update { request, id } => {
                let mut found = machine.resources.iter_mut().filter(|found| found.id == *id);
                found.next().ok_or_else(|| gone(operation))?.digest = Some(request.digest());
                return Ok(None);
            }
            Action::Prepare { digest } => {
                let host = ledger.state().items.get(&operation.key).and_then(|item| item.id.clone());
                if !machine.resources.iter().any(|found| Some(&found.id) == host.as_ref()) {
                    return Err(gone(operation));
                }
                machine.prepared.insert(operation.key.clone(), digest.clone());
                return Ok(None);
            }
            Action::SetFirewall { digest } => {
                // The firewall gets the addresses of the other hosts.
                if machine.resources.len() < 2 || !machine.prepared.contains_key(&operation.key) {
                    return Err(gone(operation));
                }
                machine.firewalls.insert(operation.key.clone(), digest.clone());
                return Ok(None);
            }
            Action::Fill { digest } => {
                if !machine.prepared.contains_key(&operation.key) {
                    return Err(gone(operation));
                }
                machine.filled.insert(operation.key.clone(), digest.clone());
                return Ok(None);
            }
            Action::Deploy { host, nodes } => {
                let wanted = machine.wanted.iter().find(|wanted| wanted.key == operation.key).cloned();
                let (true, Some(wanted)) = (machine.prepared.contains_key(host), wanted) else {
                    return Err(gone(operation));
                };
                let before = machine.projects.iter().position(|project| project.key == operation.key);
                let before = before.map(|at| machine.projects.remove(at));
                // It applies the plan to each node, and checks nothing else.
                let mut running = before.map(|before| before.nodes).unwrap_or_default();
                for NodeChange { node, change, .. } in nodes.iter().filter(|node| node.change != Change::Keep) {
                    running.retain(|found| found.key != *node);
                    if *change != Change::Stop {
                        let digest = wanted.nodes.iter().find(|wanted| wanted.key == *node);
                        let digest = digest.and_then(|wanted| wanted.digest.clone());
                        running.push(ObservedNode { key: node.clone(), running: true, digest });
                    }
                }
                machine.projects.push(ObservedProject {
                    key: operation.key.clone(),
                    host: host.clone(),
                    id: id.clone(),
                    digest: wanted.digest,
                    health: Health::Good,
                    running: true,
                    nodes: running,
                    remains: vec![Remnant::Other("a folder".to_owned())],
                });
            }
            Action::StopProject { .. } => {
                for project in machine.projects.iter_mut().filter(|project| project.key == operation.key) {
                    project.running = false;
                    project.nodes.clear();
                    project.health = Health::Broken("it was stopped".to_owned());
                }
                return Ok(None);
            }
            Action::Clean { .. } => {
                machine.projects.retain(|project| project.key != operation.key);
                return Ok(None);
            }
            Action::Release { resource } => {
                machine.resources.retain(|found| found.id != resource.id);
                if !machine.resources.iter().any(|found| found.key == operation.key) {
                    machine.prepared.remove(&operation.key);
                    machine.firewalls.remove(&operation.key);
                    machine.filled.remove(&operation.key);
                }
                return Ok(None);
            }
        }
        Ok(Some(id))
    }
}

/// A project that was only requested, taken for an existing one.
fn believed(wanted: &ProjectRequest) -> ObservedProject {
    let node = |node: &NodeRequest| ObservedNode { key: node.key.clone(), running: true, digest: node.digest.clone() };
    ObservedProject {
        key: wanted.key.clone(),
        host: wanted.host.clone(),
        id: "believed".to_owned(),
        digest: wanted.digest.clone(),
        health: Health::Good,
        running: true,
        nodes: wanted.nodes.iter().map(node).collect(),
        remains: vec![Remnant::Other("a folder".to_owned())],
    }
}

fn gone(operation: &Operation) -> Error {
    Error::new(ErrorKind::Provider, format!("{} {}", operation.action.name(), operation.key)).because("it is not there")
}

#[async_trait]
impl World for MemoryWorld {
    async fn observe(&self, known: &ClusterState) -> Result<Observed> {
        self.unless_dead().await;
        let machine = self.machine();
        let mut observed = Observed {
            resources: machine
                .resources
                .iter()
                .filter(|found| machine.unseen.get(&found.id).is_none_or(|at| *at <= Instant::now()))
                .cloned()
                .collect(),
            prepared: machine.prepared.clone(),
            firewalls: machine.firewalls.clone(),
            filled: machine.filled.clone(),
            projects: machine.projects.clone(),
        };
        match self.bug {
            Bug::HidesDuplicates => {
                observed.resources.dedup_by(|a, b| a.key == b.key);
            }
            Bug::SeesOnlyWhatTheJournalKnows => {
                let ids: Vec<&String> = known.items.values().filter_map(|item| item.id.as_ref()).collect();
                observed.resources.retain(|found| ids.contains(&&found.id));
                observed.projects.retain(|found| ids.contains(&&found.id));
            }
            Bug::BelievesWhatWasOnlyIntended => {
                for wanted in &machine.wanted {
                    let item = known.items.get(&wanted.key);
                    if item.is_some_and(|item| item.state == ItemState::Requested && item.kind == ItemKind::Project) {
                        observed.projects.retain(|project| project.key != wanted.key);
                        observed.projects.push(believed(wanted));
                    }
                }
            }
            _ => {}
        }
        Ok(observed)
    }

    async fn perform(&self, operation: &Operation, ledger: &Ledger) -> Result<()> {
        self.unless_dead().await;
        let phase = {
            let mut control = self.control.lock().unwrap();
            control.effects.push(operation.action.name());
            let number = control.effects.len() - 1;
            control.crash.filter(|(at, _)| *at == number).map(|(_, phase)| phase)
        };
        if phase == Some(Phase::Before) {
            self.die().await;
        }
        let id = self.effect(operation, ledger)?;
        if phase == Some(Phase::Done) {
            self.die().await;
        }
        if let Some(id) = id {
            let id = if self.bug == Bug::LosesIds { format!("not-{id}") } else { id };
            ledger.exists(&operation.key, &id).await?;
            if phase == Some(Phase::Journalled) {
                self.die().await;
            }
        } else if phase == Some(Phase::Journalled) {
            // Removals are journalled after this returns: the next call finds the process dead.
            self.control.lock().unwrap().dead = true;
        }
        Ok(())
    }

    fn consistency_delay(&self) -> Duration {
        if self.machine().unseen.is_empty() { Duration::ZERO } else { Duration::from_secs(2) }
    }
}
