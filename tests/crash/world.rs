//! The world in memory. What exists in it exists until somebody removes just that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gpucl::engine::{Hosts, Ledger, World};
use gpucl::error::{Error, ErrorKind, Result};
use gpucl::name::Key;
use gpucl::plan::{
    Change, Health, HostAction, NodeChange, NodeRequest, Observed, ObservedNode, ObservedProject, ProjectRequest,
    Remnant,
};
use gpucl::provider::{ObservedResource, Recorder as _, ResourceRequest, ResourceState};
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

    /// An effect, with a crash before it or once it is done. Returns where else the crash comes.
    async fn effect<T>(
        &self,
        name: &'static str,
        change: impl FnOnce(&mut Machine) -> Result<T>,
    ) -> Result<(T, Option<Phase>)> {
        self.unless_dead().await;
        let phase = {
            let mut control = self.control.lock().unwrap();
            control.effects.push(name);
            let number = control.effects.len() - 1;
            control.crash.filter(|(at, _)| *at == number).map(|(_, phase)| phase)
        };
        if phase == Some(Phase::Before) {
            self.die().await;
        }
        let changed = change(&mut self.machine())?;
        if phase == Some(Phase::Done) {
            self.die().await;
        }
        Ok((changed, phase))
    }

    /// An effect that makes something: its id is journalled.
    async fn make(
        &self,
        key: &Key,
        name: &'static str,
        ledger: &Ledger,
        change: impl FnOnce(&mut Machine) -> Result<String>,
    ) -> Result<String> {
        let (id, phase) = self.effect(name, change).await?;
        let recorded = if self.bug == Bug::LosesIds { format!("not-{id}") } else { id.clone() };
        ledger.exists(key, &recorded).await?;
        if phase == Some(Phase::Journalled) {
            self.die().await;
        }
        Ok(id)
    }

    /// Any other effect: it is journalled after this returns, and the next call finds the process dead.
    async fn change(&self, name: &'static str, change: impl FnOnce(&mut Machine) -> Result<()>) -> Result<()> {
        let ((), phase) = self.effect(name, change).await?;
        if phase == Some(Phase::Journalled) {
            self.control.lock().unwrap().dead = true;
        }
        Ok(())
    }
}

/// The effects.
impl Machine {
    /// As if nothing had been waited for.
    pub(crate) fn all_are_coming(&mut self) {
        self.resources.iter_mut().for_each(|resource| resource.state = ResourceState::Coming);
    }

    fn next_id(&mut self, key: &Key) -> String {
        self.made += 1;
        format!("{key}-{}", self.made)
    }

    fn acquire(&mut self, request: &ResourceRequest) -> Result<String> {
        let id = self.next_id(&request.key);
        self.resources.push(ObservedResource {
            digest: (request.settings["in_place"] == true).then(|| request.digest()),
            key: request.key.clone(),
            kind: request.kind.clone(),
            id: id.clone(),
            state: ResourceState::Coming,
            adopted: false,
            until: None,
            detail: String::new(),
        });
        if let Some(late) = self.late.take() {
            self.unseen.insert(id.clone(), Instant::now() + late);
        }
        Ok(id)
    }

    fn make_usable(&mut self, id: &str) -> Result<()> {
        for found in self.resources.iter_mut().filter(|found| found.id == id) {
            found.state = ResourceState::Usable;
        }
        Ok(())
    }

    fn update(&mut self, request: &ResourceRequest, id: &str) -> Result<()> {
        let mut found = self.resources.iter_mut().filter(|found| found.id == id);
        found.next().ok_or_else(|| gone("update", &request.key))?.digest = Some(request.digest());
        Ok(())
    }

    fn release(&mut self, resource: &ObservedResource) -> Result<()> {
        self.resources.retain(|found| found.id != resource.id);
        if !self.resources.iter().any(|found| found.key == resource.key) {
            self.prepared.remove(&resource.key);
            self.firewalls.remove(&resource.key);
            self.filled.remove(&resource.key);
        }
        Ok(())
    }

    fn perform(&mut self, key: &Key, action: &HostAction, ledger: &Ledger) -> Result<()> {
        match action {
            HostAction::Prepare { digest } => {
                let host = ledger.state().items.get(key).and_then(|item| item.id.clone());
                if !self.resources.iter().any(|found| found.is_usable() && Some(&found.id) == host.as_ref()) {
                    return Err(gone(action.name(), key));
                }
                self.prepared.insert(key.clone(), digest.clone());
            }
            HostAction::SetFirewall { digest } => {
                // The firewall gets the addresses of the other hosts.
                if self.resources.len() < 2 || !self.prepared.contains_key(key) {
                    return Err(gone(action.name(), key));
                }
                self.firewalls.insert(key.clone(), digest.clone());
            }
            HostAction::Fill { digest } => {
                if !self.prepared.contains_key(key) {
                    return Err(gone(action.name(), key));
                }
                self.filled.insert(key.clone(), digest.clone());
            }
            HostAction::Deploy { .. } => return Err(gone("make", key)),
            HostAction::StopProject { .. } => {
                for project in self.projects.iter_mut().filter(|project| project.key == *key) {
                    project.running = false;
                    project.nodes.clear();
                    project.health = Health::Broken("it was stopped".to_owned());
                }
            }
            HostAction::Clean { .. } => self.projects.retain(|project| project.key != *key),
        }
        Ok(())
    }

    fn deploy(&mut self, key: &Key, host: &Key, nodes: &[NodeChange]) -> Result<String> {
        let wanted = self.wanted.iter().find(|wanted| wanted.key == *key).cloned();
        let (true, Some(wanted)) = (self.prepared.contains_key(host), wanted) else {
            return Err(gone("deploy", key));
        };
        let before = self.projects.iter().position(|project| project.key == *key);
        let before = before.map(|at| self.projects.remove(at));
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
        let id = self.next_id(key);
        self.projects.push(ObservedProject {
            key: key.clone(),
            host: host.clone(),
            id: id.clone(),
            digest: wanted.digest,
            health: Health::Good,
            running: true,
            nodes: running,
            remains: vec![Remnant::Other("a folder".to_owned())],
        });
        Ok(id)
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

fn gone(doing: &str, key: &Key) -> Error {
    Error::new(ErrorKind::Provider, format!("{doing} {key}")).because("it is not there")
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

    async fn acquire(&self, request: &ResourceRequest, ledger: &Ledger) -> Result<String> {
        self.make(&request.key, "acquire", ledger, |machine| machine.acquire(request)).await
    }

    async fn wait_usable(&self, _request: &ResourceRequest, id: &str, _ledger: &Ledger) -> Result<()> {
        self.change("wait for", |machine| machine.make_usable(id)).await
    }

    async fn update(&self, request: &ResourceRequest, id: &str, _ledger: &Ledger) -> Result<()> {
        self.change("update", |machine| machine.update(request, id)).await
    }

    async fn release(&self, resource: &ObservedResource) -> Result<()> {
        self.change("release", |machine| machine.release(resource)).await
    }

    fn hosts(&self) -> Option<&dyn Hosts> {
        Some(self)
    }

    fn consistency_delay(&self) -> Duration {
        if self.machine().unseen.is_empty() { Duration::ZERO } else { Duration::from_secs(2) }
    }
}

#[async_trait]
impl Hosts for MemoryWorld {
    async fn perform(&self, key: &Key, action: &HostAction, ledger: &Ledger) -> Result<()> {
        let name = action.name();
        match action {
            HostAction::Deploy { host, nodes } => {
                self.make(key, name, ledger, |machine| machine.deploy(key, host, nodes)).await.map(|_| ())
            }
            _ => self.change(name, |machine| machine.perform(key, action, ledger)).await,
        }
    }
}
