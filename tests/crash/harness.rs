//! One cluster over the world in memory: crash it, resume, inspect the result.

use std::collections::BTreeSet;

use gpucl::engine::{Cancel, Ledger, NothingElse, Pipeline, World};
use gpucl::event::Bus;
use gpucl::name::{Key, Scope};
use gpucl::plan::{DataGoal, Desired, FirewallGoal, Goal, NodeRequest, Preparation, ProjectRequest};
use gpucl::provider::{Finding, ResourceKind, ResourceRequest};
use gpucl::state::{Paths, Store};

use super::world::{Bug, MemoryWorld, Phase};

/// What was tried, and what went wrong.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) points: usize,
    pub(crate) kinds: BTreeSet<&'static str>,
    pub(crate) failures: Vec<(Phase, String)>,
}

/// A goal that can be used again.
#[derive(Debug, Clone)]
pub(crate) enum Goalish {
    Up(Desired),
    Stop,
    Down,
}

impl Goalish {
    fn goal(&self) -> Goal {
        match self {
            Self::Up(desired) => Goal::Up(desired.clone()),
            Self::Stop => Goal::Stop,
            Self::Down => Goal::Down,
        }
    }
}

/// A host of this form, and on it a head and so many workers with so many CPUs each.
pub(crate) fn desired(workers: usize, cpus: u32, host: &str) -> Desired {
    let node = |key: Key| NodeRequest { digest: Some(format!("{key} of {cpus}")), key };
    let keys = std::iter::once(Key::head()).chain((0..workers).map(Key::worker));
    Desired {
        resources: vec![ResourceRequest {
            key: Key::host(0),
            kind: ResourceKind("host".to_owned()),
            settings: serde_json::json!({ "form": host }),
            needs: Vec::new(),
            is_host: true,
            found: Finding::default(),
            adopted: None,
        }],
        preparations: vec![Preparation {
            host: Key::host(0),
            digest: "prepared".to_owned(),
            setup: None,
            behind: None,
        }],
        projects: vec![ProjectRequest {
            key: Key::project(0),
            host: Key::host(0),
            digest: Some(format!("{workers} of {cpus}")),
            nodes: keys.map(node).collect(),
        }],
        ..Desired::default()
    }
}

/// Two hosts of this form, each with a project.
pub(crate) fn desired_projects(host: &str) -> Desired {
    let one = desired(0, 1, host);
    let both = |at: usize| (Key::host(at), Key::project(at));
    Desired {
        resources: (0..2).map(|at| ResourceRequest { key: both(at).0, ..one.resources[0].clone() }).collect(),
        preparations: (0..2)
            .map(|at| Preparation { host: both(at).0, digest: "prepared".to_owned(), setup: None, behind: None })
            .collect(),
        projects: (0..2)
            .map(|at| ProjectRequest { key: both(at).1, host: both(at).0, ..one.projects[0].clone() })
            .collect(),
        ..Desired::default()
    }
}

/// Two objects of this form on a platform, which can be changed in place.
pub(crate) fn desired_objects(form: &str) -> Desired {
    let object = |key: &str| ResourceRequest {
        key: key.parse().unwrap(),
        kind: ResourceKind("object".to_owned()),
        settings: serde_json::json!({ "form": form, "in_place": true }),
        needs: Vec::new(),
        is_host: false,
        found: Finding::default(),
        adopted: None,
    };
    Desired { resources: vec![object("policy"), object("raycluster")], ..Desired::default() }
}

/// The same on hosts that are made, and are opened to each other once they are there.
pub(crate) fn desired_with_firewalls(host: &str) -> Desired {
    let projects = desired_projects(host);
    let firewalls = (0..2).map(|at| FirewallGoal { host: Key::host(at), digest: "firewalls".to_owned() }).collect();
    let data = (0..2).map(|at| DataGoal { host: Key::host(at), digest: "data".to_owned() }).collect();
    Desired { firewalls, data, ..projects }
}

/// One cluster: its files, and the world that it acts upon.
pub(crate) struct Harness {
    folder: tempfile::TempDir,
    pub(crate) world: MemoryWorld,
}

impl Harness {
    pub(crate) fn new(bug: Bug) -> Self {
        // Thousands of fsyncs: a file system in memory where there is one.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { folder, world: MemoryWorld::new(bug) }
    }

    fn scope() -> Scope {
        Scope { owner: "abcd1234".parse().unwrap(), cluster: "demo".parse().unwrap() }
    }

    /// The state, read from its files as a new process would.
    fn ledger(&self) -> Ledger {
        let root = self.folder.path();
        let paths = Paths {
            config: root.join("config"),
            state: root.join("state"),
            data: root.join("data"),
            cache: root.join("cache"),
            runtime: root.join("run"),
        };
        let scope = Self::scope();
        let store = Store::open(&paths, &scope.cluster).unwrap();
        Ledger::new(store.unwrap_or_else(|| Store::create(&paths, &scope, jiff::Timestamp::now()).unwrap()))
    }

    /// One whole run towards a goal, as the verbs do it; an error says why it did not get there.
    async fn run(&self, goal: &Goalish) -> Result<(), String> {
        self.run_in(&self.world, goal).await
    }

    /// The same in another world.
    pub(crate) async fn run_in(&self, world: &dyn World, goal: &Goalish) -> Result<(), String> {
        let (bus, _inbox) = Bus::new();
        let (_handle, cancel) = Cancel::new();
        if let Goalish::Up(desired) = goal {
            self.world.machine().wanted.clone_from(&desired.projects);
        }
        let ledger = self.ledger();
        let pipeline = Pipeline { world, replan: &NothingElse, ledger: &ledger, events: &bus, cancel: &cancel };
        let result = match goal {
            Goalish::Down => pipeline.remove_all().await.map(|_| ()),
            _ => match pipeline.plan(&goal.goal()).await {
                Ok(planned) => pipeline.execute(&planned.plan).await.into_result(),
                Err(error) => Err(error),
            },
        };
        result.map_err(|error| error.to_string())
    }

    /// The kinds of the effects of a run, in the order in which they are begun.
    pub(crate) async fn effects(&mut self, before: Option<&Desired>, goal: &Goalish) -> Vec<&'static str> {
        // With a deliberate bug even the beginning may fail; then the crashes show it.
        let _ = self.begin(before).await;
        self.world.crash_at(None);
        let _ = self.run(goal).await;
        self.world.effects()
    }

    async fn begin(&self, before: Option<&Desired>) -> Result<(), String> {
        match before {
            Some(desired) => {
                self.run(&Goalish::Up(desired.clone())).await?;
                if desired.resources.iter().any(|request| request.settings["form"] == "slow") {
                    self.world.machine().all_are_coming();
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Runs until the crash; what was in flight is dropped, what was known is forgotten.
    pub(crate) async fn crash(&mut self, goal: &Goalish, at: usize, phase: Phase) {
        self.world.crash_at(Some((at, phase)));
        tokio::select! {
            biased;
            () = self.world.crashed.notified() => {}
            _ = self.run(goal) => {}
        }
        self.world.crash_at(None);
    }

    /// Crashes once, then either goes on to the goal and ends, or ends at once.
    pub(crate) async fn crash_and_go_on(
        &mut self,
        before: Option<&Desired>,
        goal: &Goalish,
        at: usize,
        phase: Phase,
        then_down: bool,
    ) -> Result<(), String> {
        self.begin(before).await?;
        self.crash(goal, at, phase).await;
        if !then_down {
            self.converges(goal).await?;
        }
        self.ends().await
    }

    /// Goes on; then everything wanted exists exactly once, and there is nothing more to do.
    pub(crate) async fn converges(&mut self, goal: &Goalish) -> Result<(), String> {
        self.run(goal).await.map_err(|error| format!("going on failed: {error}"))?;
        self.world.crash_at(None);
        self.run(goal).await.map_err(|error| format!("going on a second time failed: {error}"))?;
        let again = self.world.effects();
        if !again.is_empty() {
            return Err(format!("it was not done after all: {again:?}"));
        }
        let machine = self.world.machine();
        let hosts = match goal {
            Goalish::Up(desired) => desired.resources.len(),
            Goalish::Stop => machine.resources.len().max(1),
            Goalish::Down => 0,
        };
        if machine.resources.len() != hosts {
            return Err(format!("{} hosts, wanted {hosts}: {:?}", machine.resources.len(), *machine));
        }
        let projects = machine.projects.iter().filter(|project| project.running).count();
        let wanted = if let Goalish::Up(desired) = goal { desired.projects.len() } else { 0 };
        if projects != wanted {
            return Err(format!("{projects} projects run, wanted {wanted}: {:?}", machine.projects));
        }
        if let Goalish::Up(desired) = goal {
            for wanted in &desired.projects {
                let found = machine.projects.iter().find(|found| found.key == wanted.key);
                let nodes = |key: &Key, digest: &Option<String>| {
                    found.is_some_and(|found| {
                        found.nodes.iter().any(|node| node.key == *key && node.running && node.digest == *digest)
                    })
                };
                if let Some(node) = wanted.nodes.iter().find(|node| !nodes(&node.key, &node.digest)) {
                    return Err(format!("{} does not run as it is wanted", node.key));
                }
                if found.is_some_and(|found| found.nodes.len() != wanted.nodes.len()) {
                    return Err(format!("{} has other nodes as well: {found:?}", wanted.key));
                }
            }
            // The journal agrees with the world.
            let known = self.ledger().state();
            let resources = machine.resources.iter().map(|found| &found.id);
            let ids: BTreeSet<&String> = resources.chain(machine.projects.iter().map(|found| &found.id)).collect();
            let written: BTreeSet<&String> = known.items.values().filter_map(|item| item.id.as_ref()).collect();
            if ids != written {
                return Err(format!("the journal knows {written:?}, there is {ids:?}"));
            }
        }
        Ok(())
    }

    /// Takes it down; then nothing exists, whatever the state says.
    pub(crate) async fn ends(&mut self) -> Result<(), String> {
        self.run(&Goalish::Down).await.map_err(|error| format!("down failed: {error}"))?;
        let machine = self.world.machine();
        let left = machine.resources.len() + machine.projects.len();
        if left > 0 {
            return Err(format!("LEAK: {left} things are left: {:?}", *machine));
        }
        Ok(())
    }
}
