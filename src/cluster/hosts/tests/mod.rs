//! `up` on an in-memory cloud and hosts, with a paused clock: hours take milliseconds.

mod capacity_wait;
mod cloud;
mod host_key;
mod hosts;
mod promise;
mod time;

use std::sync::Arc;
use std::time::Duration;

use super::capacity::CapacityWait;
use super::fleet::Fleet;
use super::on_hosts::OnHosts;
use super::promise::{Compared, promises};
use super::rounds::carry_to;
use super::supply::Supply;
use crate::cluster::substrate::Look;
use crate::engine::{Cancel, CancelHandle, Ledger, Pipeline};
use crate::error::Result;
use crate::event::{Bus, EventKind};
use crate::name::Scope;
use crate::provider::Provider as _;
use crate::render::Library;
use crate::secret::Secrets;
use crate::spec::{Loaded, parse};
use crate::state::{ClusterState, Pages, Paths, Store};

use cloud::Cloud;
use hosts::Hosts;

const HOUR: Duration = Duration::from_secs(3600);

/// One user with one cloud.
struct Home {
    folder: tempfile::TempDir,
    cloud: Cloud,
    hosts: Hosts,
    cancel: (CancelHandle, Cancel),
}

/// The outcome of an `up`.
struct Went {
    promises: Vec<Compared>,
    result: Result<usize>,
    events: Vec<EventKind>,
    known: ClusterState,
}

impl Went {
    /// The waits that it reported.
    fn waited(&self) -> Vec<String> {
        let waiting = self.events.iter().filter_map(|event| match event {
            EventKind::Waiting { what, .. } => Some(what.clone()),
            _ => None,
        });
        waiting.collect()
    }
}

/// A spec with this many hosts, and further YAML.
fn spec(hosts: usize, more: &str) -> Loaded {
    spec_with("{per: host, gpus: 0}", hosts, more)
}

/// A spec with these workers, this many hosts, and further YAML.
fn spec_with(workers: &str, hosts: usize, more: &str) -> Loaded {
    let entries: String = (0..hosts).map(|host| format!("  - {{node: h{host}}}\n")).collect();
    let text = format!(
        "name: demo\nprovider: ssh\nruntime: docker\nhosts:\n{entries}\
         ray: {{workers: {workers}}}\n\
         services: {{object_store: false, prometheus: false, grafana: false, jupyter: false}}\n{more}"
    );
    parse("cluster.yaml", &text, &crate::providers::find).unwrap()
}

impl Home {
    fn new(cloud: Cloud) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { folder, cloud, hosts: Hosts::new(), cancel: Cancel::new() }
    }

    fn scope() -> Scope {
        Scope { owner: "abcd1234".parse().unwrap(), cluster: "demo".parse().unwrap() }
    }

    fn paths(&self) -> Paths {
        let of = |name: &str| self.folder.path().join(name);
        Paths { config: of("config"), state: of("state"), data: of("data"), cache: of("cache"), runtime: of("run") }
    }

    fn ledger(&self) -> Ledger {
        let (paths, scope) = (self.paths(), Self::scope());
        let store = Store::open(&paths, &scope.cluster).unwrap();
        Ledger::new(store.unwrap_or_else(|| Store::create(&paths, &scope, jiff::Timestamp::now()).unwrap()))
    }

    /// Runs `up` without the checks at its end.
    async fn up(&self, loaded: &Loaded, wait: Option<Duration>) -> Went {
        let (events, mut inbox) = Bus::new();
        let cancel = self.cancel.1.clone();
        let ledger = self.ledger();
        let poll = self.cloud.capability().poll;
        let wait = CapacityWait::new(wait, loaded.spec.capacity.as_ref(), poll, &events, &cancel);
        let (scope, spec) = (Self::scope(), &loaded.spec);
        let (connector, look) = (Arc::new(self.hosts.clone()), Look::Checks { at_most: Duration::ZERO });
        let provider = Box::new(self.cloud.clone());
        let on = OnHosts {
            fleet: Fleet::new(scope.clone(), spec, provider.as_ref(), connector, self.paths(), look),
            supply: Supply::new(provider, scope.clone(), spec, events.clone()),
            scope,
            spec: spec.clone(),
            library: Library::default(),
            secrets: Ok(Secrets::placeholders()),
            files: Some(Vec::new()),
            pages: Pages::from([("dashboard".to_owned(), 8265), ("client".to_owned(), 10001)]),
            removal: None,
            events: events.clone(),
            cancel: cancel.clone(),
            wait,
        };
        let pipeline = Pipeline { world: &on, replan: &on, ledger: &ledger, events: &events, cancel: &cancel };
        let result = async {
            let found = on.resolve_or_wait().await?;
            let observed = pipeline.observe_consistent().await?;
            let goal = on.goal_of_up(loaded, &found.offers, &ledger.state(), &observed)?;
            carry_to(&pipeline, &on, loaded, found.offers, observed, goal).await
        }
        .await;
        let mut received = Vec::new();
        while let Ok(event) = inbox.try_recv() {
            received.push(event);
        }
        let known = ledger.state();
        Went { promises: promises(&on.layout(&known), &known), result, events: received, known }
    }
}
