//! One user's files, and runs of the program on them: each run is a new process that knows only the disk.
//!
//! Provider, engine, plan and journal are the real ones. The world is what clusters of hosts have of it before anybody
//! logs in.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use gpucl::cluster::{Gc, GcOptions, Settings};
use gpucl::engine::{Cancel, Ledger, NothingElse, Pipeline, World};
use gpucl::error::{Error, ErrorKind, Result};
use gpucl::event::Bus;
use gpucl::name::{Key, Owner, Scope};
use gpucl::plan::{Desired, Goal, Observed};
use gpucl::provider::{EndAsk, HostRequest, ObservedResource, Provider, Recorder, ResourceRequest, UserEnvironment};
use gpucl::providers::find;
use gpucl::render::Library;
use gpucl::state::{ClusterState, Paths, Store};
use tokio::sync::Notify;

use super::bug::{Bug, Buggy};
use super::cloud::Cloud;

/// After which call the process dies, before the journal knows of it: the kind of what is acquired, waited for or
/// released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death<'a> {
    Acquired(&'a str),
    Waited(&'a str),
    Released(&'a str),
    /// After the end of the lease was moved.
    Extended,
}

/// A person's home.
pub(crate) struct Home<C> {
    folder: tempfile::TempDir,
    pub(crate) cloud: Arc<C>,
    pub(crate) scope: Scope,
    /// The kinds of all that is wanted, of those that the hosts take.
    wanted: Vec<&'static str>,
    bug: Bug,
    /// The account, logged in to; it remembers nothing of what it made.
    account: OnceLock<Arc<dyn Provider>>,
    /// Foreign resources that the last `up` adopted.
    adopted: Mutex<Vec<ResourceRequest>>,
}

impl<C: Cloud> Home<C> {
    pub(crate) fn new(cloud: Arc<C>, owner: &Owner, wanted: &[&'static str], bug: Bug) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let scope = Scope { owner: owner.clone(), cluster: "demo".parse().unwrap() };
        let home = Self {
            folder,
            cloud,
            scope,
            wanted: wanted.to_vec(),
            bug,
            account: OnceLock::new(),
            adopted: Mutex::default(),
        };
        // A cluster whose name begins as ours does, and that is known here.
        let neighbour = Scope { owner: owner.clone(), cluster: "demo-2".parse().unwrap() };
        drop(Store::create(&home.paths(), &neighbour, jiff::Timestamp::now()).unwrap());
        home
    }

    fn paths(&self) -> Paths {
        let at = |name: &str| -> PathBuf { self.folder.path().join(name) };
        Paths { config: at("config"), state: at("state"), data: at("data"), cache: at("cache"), runtime: at("run") }
    }

    fn settings(&self) -> Settings {
        let variables = self.cloud.variables().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let at = |name: &str| -> PathBuf { self.folder.path().join(name) };
        Settings {
            paths: self.paths(),
            owner: self.scope.owner.clone(),
            library: Library::new(Vec::new()),
            program: PathBuf::new(),
            environment: Vec::new(),
            host_environment: Vec::new(),
            user_environment: UserEnvironment {
                variables,
                home: at("home"),
                config_home: at("config"),
                config_dir: at("config"),
                here: at("home"),
            },
            events: Bus::new().0,
            cancel: Cancel::new().1,
        }
    }

    fn provider(&self) -> Result<Arc<dyn Provider>> {
        let settings = self.cloud.settings(&self.wanted);
        let open = || find(C::PROVIDER)?.open(&settings, &self.settings().context());
        match self.bug {
            // Reading the system's certificates again takes longer than the rest of a step.
            Bug::None => Ok(self.account.get_or_init(|| Arc::from(open().unwrap())).clone()),
            bug => Ok(Arc::new(Buggy::new(open()?, bug, self.cloud.clone()))),
        }
    }

    /// The kinds of the wanted resources that are not adopted, sorted.
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        let adopted = self.adopted.lock().unwrap().clone();
        let mut kinds = self.wanted.clone();
        kinds.retain(|kind| !adopted.iter().any(|request| request.kind.0 == *kind));
        kinds.sort_unstable();
        kinds
    }

    /// Whether the resource with this key was adopted, not created.
    pub(crate) fn is_adopted(&self, key: &Key) -> bool {
        self.adopted.lock().unwrap().iter().any(|request| request.key == *key)
    }

    /// The state, read from its files as a new process does.
    pub(crate) fn ledger(&self) -> Ledger {
        let paths = self.paths();
        let store = Store::open(&paths, &self.scope.cluster).unwrap();
        Ledger::new(store.unwrap_or_else(|| Store::create(&paths, &self.scope, jiff::Timestamp::now()).unwrap()))
    }

    /// As after the loss of the machine: nothing is known of the cluster any more.
    pub(crate) fn lose_state(&self) {
        std::fs::remove_dir_all(self.paths().cluster(&self.scope.cluster)).unwrap_or_default();
    }

    /// A process until its end, or until it dies.
    async fn process(
        &self,
        death: Option<Death<'static>>,
        work: impl AsyncFnOnce(&Process) -> Result<()>,
    ) -> Result<()> {
        let provider = self.provider()?;
        let process = Process {
            scope: self.scope.clone(),
            consistency_delay: C::CONSISTENCY_DELAY.unwrap_or_else(|| provider.capability().consistency_delay),
            provider,
            adopted: Mutex::default(),
            death,
            died: Notify::new(),
        };
        tokio::select! {
            biased;
            () = process.died.notified() => Err(Error::new(ErrorKind::Internal, "live").because("the process died")),
            done = work(&process) => done,
        }
    }

    /// `up`: returns how many operations its plan had.
    pub(crate) async fn up(&self, death: Option<Death<'static>>) -> Result<usize> {
        let mut operations = 0;
        self.process(death, async |process| {
            let ledger = self.ledger();
            let (events, cancel) = (Bus::new().0, Cancel::new().1);
            let pipeline =
                Pipeline { world: process, replan: &NothingElse, ledger: &ledger, events: &events, cancel: &cancel };
            let hosts = (0..).zip(self.cloud.hosts()).map(|(index, host)| HostRequest::new(Key::host(index), host));
            let resolved = process.provider.resolve(&self.scope, hosts.collect()).await?;
            let mut resources: Vec<ResourceRequest> = Vec::new();
            for host in &resolved.hosts {
                for request in process.provider.expand(&self.scope, host)? {
                    // Hosts share some.
                    if resources.iter().all(|known| known.key != request.key) {
                        resources.push(request);
                    }
                }
            }
            resources.retain(|request| self.wanted.contains(&request.kind.0.as_str()));
            let adopted: Vec<_> = resources.iter().filter(|request| request.adopted.is_some()).cloned().collect();
            *self.adopted.lock().unwrap() = adopted.clone();
            // As with clusters: `down` observes only what was created for it.
            *process.adopted.lock().unwrap() = adopted;
            let goal = Goal::Up(Desired { resources, ..Desired::default() });
            let planned = pipeline.plan(&goal).await?;
            operations = planned.plan.operations.len();
            pipeline.execute(&planned.plan).await.into_result()
        })
        .await?;
        Ok(operations)
    }

    /// `down`; it forgets the cluster at its end.
    pub(crate) async fn down(&self, death: Option<Death<'static>>) -> Result<()> {
        self.process(death, async |process| {
            let ledger = self.ledger();
            let (events, cancel) = (Bus::new().0, Cancel::new().1);
            let pipeline =
                Pipeline { world: process, replan: &NothingElse, ledger: &ledger, events: &events, cancel: &cancel };
            pipeline.remove_all().await?;
            ledger.into_store().unwrap().remove()
        })
        .await
    }

    /// Moves the end of the cluster's lease there.
    pub(crate) async fn extend(&self, id: &str, end: jiff::Timestamp, death: Option<Death<'static>>) -> Result<()> {
        self.process(death, async |process| {
            let reservations = process.provider.reservations().unwrap();
            let lease = reservations.lease(id).await?;
            if lease.end != end {
                reservations.extend(id, EndAsk::At(end), false).await?;
            }
            process.dies(Death::Extended).await;
            Ok(())
        })
        .await
    }

    /// `gc --yes`, again while something fails, three times at most.
    pub(crate) async fn gc(&self) -> Result<()> {
        let settings = self.settings();
        let mut last = None;
        for _ in 0..3 {
            let provider = self.provider()?;
            let gc = Gc {
                settings: &settings,
                owner: Some(self.scope.owner.clone()),
                name: C::PROVIDER.to_owned(),
                site: None,
                provider: provider.as_ref(),
                options: GcOptions::default(),
            };
            let found = gc.find().await?;
            last = gc.delete(&found).await.into_iter().next().map(|(_, error)| error);
            if gc.left().await?.is_empty() {
                return Ok(());
            }
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::LeftBehind, "delete what is left")))
    }
}

/// A run of the program.
struct Process {
    scope: Scope,
    provider: Arc<dyn Provider>,
    adopted: Mutex<Vec<ResourceRequest>>,
    death: Option<Death<'static>>,
    died: Notify,
    consistency_delay: std::time::Duration,
}

impl Process {
    async fn dies(&self, here: Death<'_>) {
        if self.death == Some(here) {
            self.died.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

/// The created resource is reported, and the process dies before it is journalled.
struct Dying<'a> {
    process: &'a Process,
    ledger: &'a Ledger,
    kind: &'a str,
}

#[async_trait]
impl Recorder for Dying<'_> {
    async fn exists(&self, key: &Key, id: &str) -> Result<()> {
        self.process.dies(Death::Acquired(self.kind)).await;
        self.ledger.exists(key, id).await
    }
}

#[async_trait]
impl World for Process {
    async fn observe(&self, _known: &ClusterState) -> Result<Observed> {
        let mut resources = self.provider.observe(&self.scope).await?;
        let adopted = self.adopted.lock().unwrap().clone();
        if !adopted.is_empty() {
            resources.extend(self.provider.observe_adopted(&adopted).await?);
        }
        Ok(Observed { resources, ..Observed::default() })
    }

    async fn acquire(&self, request: &ResourceRequest, ledger: &Ledger) -> Result<String> {
        let recorder = Dying { process: self, ledger, kind: &request.kind.0 };
        Ok(self.provider.acquire(&self.scope.tag(&request.key), request, &recorder).await?.id)
    }

    async fn wait_usable(&self, request: &ResourceRequest, id: &str, _ledger: &Ledger) -> Result<()> {
        self.provider.wait_usable(&self.scope.tag(&request.key), request, id).await?;
        self.dies(Death::Waited(&request.kind.0)).await;
        Ok(())
    }

    async fn release(&self, resource: &ObservedResource) -> Result<()> {
        self.provider.release(&self.scope, resource).await?;
        self.dies(Death::Released(&resource.kind.0)).await;
        Ok(())
    }

    fn consistency_delay(&self) -> std::time::Duration {
        self.consistency_delay
    }
}
