//! The world of a cluster on hosts: connected hosts, with one program at a time on each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::connector::HostConnector;
use super::expected::{LOOPBACK, Survey, address_of, taken};
use super::goal::no_place;
use super::observe::has_facts;
use crate::cluster::backend::local_files::LocalFiles;
use crate::engine::{Cancel, Ledger, World};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::event::Bus;
use crate::host::Host;
use crate::name::{Key, Scope};
use crate::plan::{Action, Observed, Operation};
use crate::playbook::Facts;
use crate::provider::{GpuOffer, HostPlace, HostRequest, ObservedResource, Provider, ResourceRequest, Site};
use crate::render::Library;
use crate::runtime::project::{self, CheckLine, CleanOptions, Container, HostFolders, ProjectRuntime};
use crate::secret::Secrets;
use crate::spec::{NodeSpec, Spec};
use crate::state::{ClusterState, HostPorts, Pages, Paths};
use crate::util::human;

/// Connect timeout of a host that is already up.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// What a world is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To observe and change; inspecting a host also runs its checks.
    Check,
    /// To observe, with every check run now.
    Verify,
    /// To observe, without checks.
    Inspect,
    /// To observe only what runs.
    Glance,
    /// To remove everything, with these options for cleaning.
    Remove(CleanOptions),
}

/// The configuration of a [`ProjectWorld`].
pub(super) struct ProjectWorldConfig {
    /// The owner and the cluster.
    pub(super) scope: Scope,
    /// The cluster's spec.
    pub(super) spec: Spec,
    /// Where its hosts come from.
    pub(super) provider: Box<dyn Provider>,
    /// How hosts are connected.
    pub(super) connector: Arc<dyn HostConnector>,
    /// Playbooks and templates.
    pub(super) library: Library,
    /// The user's folders on this machine.
    pub(super) paths: Paths,
    /// The cluster's credentials.
    pub(super) secrets: Secrets,
    /// The files of this machine that hosts should have; `None` where nothing is filled.
    pub(super) files: Option<Vec<LocalFiles>>,
    /// What the world is opened for.
    pub(super) purpose: Purpose,
    /// Where events are sent.
    pub(super) events: Bus,
    /// Cancellation by Ctrl-C.
    pub(super) cancel: Cancel,
}

/// What this command has observed on one host.
#[derive(Debug, Clone, Default)]
pub(super) struct HostObservation {
    pub(super) facts: Facts,
    pub(super) checks: Vec<CheckLine>,
    pub(super) containers: Vec<Container>,
}

/// What this command has observed so far.
#[derive(Debug, Default)]
pub(super) struct Observations {
    pub(super) hosts: Option<Vec<HostRequest>>,
    /// The GPUs that the provider promises for each host.
    pub(super) promised: BTreeMap<Key, Vec<GpuOffer>>,
    pub(super) start: Option<jiff::Timestamp>,
    pub(super) end: Option<jiff::Timestamp>,
    pub(super) places: BTreeMap<Key, HostPlace>,
    pub(super) by_host: BTreeMap<Key, HostObservation>,
    ports: BTreeMap<Key, HostPorts>,
    pub(super) pages: Option<Pages>,
    pub(super) kept: Vec<String>,
    pub(super) missed: BTreeSet<String>,
    /// The workers that were stopped by hand: checks leave them out.
    pub(super) stopped_by_hand: BTreeSet<Key>,
    /// How many of our ports were tried after cleaning, and how many of them are still in use.
    pub(super) tried_ports: usize,
    pub(super) open_ports: usize,
    /// Hosts that did not answer their first inspection, and why.
    silent: BTreeMap<Key, String>,
    /// Serializes the first inspection of each host.
    turns: BTreeMap<Key, Arc<tokio::sync::Mutex<()>>>,
    /// The last answer of the provider, and when it came.
    pub(super) last_observed: Option<(tokio::time::Instant, Vec<ObservedResource>)>,
}

/// The real [`World`]: hosts with projects.
pub(super) struct ProjectWorld {
    pub(super) config: ProjectWorldConfig,
    observations: Mutex<Observations>,
    pub(super) asking: tokio::sync::Mutex<()>,
    /// Whether ports have been claimed on all hosts.
    claiming: tokio::sync::Mutex<bool>,
}

impl ProjectWorld {
    /// Creates a world without connecting to anything.
    pub(super) fn new(config: ProjectWorldConfig) -> Self {
        Self {
            config,
            observations: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            claiming: tokio::sync::Mutex::default(),
        }
    }

    /// Facts collected from a host during this command.
    pub(super) fn observed_facts(&self, host: &Key) -> Option<Facts> {
        self.observations().by_host.get(host).map(|observed| observed.facts.clone())
    }

    /// Check results from a host during this command; empty if they did not run.
    pub(super) fn observed_checks(&self, host: &Key) -> Vec<CheckLine> {
        self.observations().by_host.get(host).map(|observed| observed.checks.clone()).unwrap_or_default()
    }

    /// Records the boot id of each verified host; a different one later is reported as a restart.
    pub(super) fn note_boots(&self, ledger: &Ledger) -> Result<()> {
        for host in &self.host_keys() {
            let now = self.observed_facts(host).map(|facts| facts.boot_id).unwrap_or_default();
            ledger.note_host(host, |host| {
                if let Some(facts) = host.facts.as_mut().filter(|_| !now.is_empty()) {
                    facts.boot_id = now;
                }
            })?;
        }
        Ok(())
    }

    /// Containers observed on a host during this command.
    pub(super) fn observed_containers(&self, host: &Key) -> Vec<Container> {
        self.observations().by_host.get(host).map(|observed| observed.containers.clone()).unwrap_or_default()
    }

    /// The place of a host, if known.
    pub(super) fn place_of(&self, host: &Key) -> Option<HostPlace> {
        self.observations().places.get(host).cloned()
    }

    /// What cleaning left on purpose.
    pub(super) fn kept(&self) -> Vec<String> {
        self.observations().kept.clone()
    }

    /// The nodes that may have left a process behind.
    pub(super) fn missed(&self) -> BTreeSet<String> {
        self.observations().missed.clone()
    }

    pub(super) fn observations(&self) -> MutexGuard<'_, Observations> {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster's folders on a host.
    pub(super) fn folders(&self, host: &Key) -> HostFolders {
        match self.place_of(host) {
            Some(HostPlace::Local { folder, claim }) => HostFolders::here(&folder, claim, &self.config.paths),
            Some(HostPlace::Ssh { site, .. }) => {
                self.runtime().folders_of(&self.config.scope.tag(host).to_string()).at_site(&site)
            }
            None => self.runtime().folders_of(&self.config.scope.tag(host).to_string()),
        }
    }

    /// What is particular about a host's site.
    pub(super) fn site(&self, host: &Key) -> Site {
        match self.place_of(host) {
            Some(HostPlace::Ssh { site, .. }) => *site,
            Some(_) => Site::default(),
            // One that is not there yet, or no more, comes at the same site.
            None => self.config.provider.site(),
        }
    }

    pub(super) fn home(&self, host: &Key) -> String {
        self.folders(host).home
    }

    /// The runtime of the cluster's nodes.
    pub(super) fn runtime(&self) -> &'static dyn ProjectRuntime {
        project::of(self.config.spec.runtime)
    }

    /// Whether a host's content is deleted with the host, so that cleaning is unnecessary.
    pub(super) fn leaves_no_trace(&self) -> bool {
        matches!(self.config.purpose, Purpose::Remove(_)) && self.config.provider.capability().hosts_vanish
    }

    pub(super) async fn connected(&self, host: &Key) -> Result<Arc<dyn Host>> {
        let place = self.place_of(host).ok_or_else(|| no_place(host))?;
        self.config.connector.host(host, &place, &self.home(host), ANSWERS_WITHIN).await
    }

    /// Connects to a host that may still be booting: with the timeout of the spec, or else of its provider.
    pub(super) async fn connected_new(&self, host: &Key, known: &ClusterState) -> Result<Arc<dyn Host>> {
        let place = self.place_of(host).ok_or_else(|| no_place(host))?;
        let is_new = !has_facts(known, host);
        let wait = match &self.config.spec.timeouts.boot {
            Some(boot) if is_new => boot.0,
            None if is_new => ANSWERS_WITHIN.max(self.config.provider.capability().boot),
            _ => ANSWERS_WITHIN,
        };
        let begun = Instant::now();
        self.config.connector.host(host, &place, &self.home(host), wait).await.map_err(|error| {
            // An error before the timeout is not a matter of waiting longer.
            if !is_new || begun.elapsed() < wait {
                return error;
            }
            // The whole timeout is used up: a retry would double it.
            error
                .status(Status::Permanent)
                .because(format!("it did not answer within {} (`timeouts.boot`)", human::duration(wait)))
                .hint("the provider reports it as running; for slow hosts set `timeouts: {boot: 45m}` in the spec")
        })
    }

    /// Inspects a host that has not been inspected yet; concurrent callers share one inspection.
    pub(super) async fn observe_new(&self, host: &Key, known: &ClusterState) -> Result<()> {
        let turn = Arc::clone(self.observations().turns.entry(host.clone()).or_default());
        let _turn = turn.lock().await;
        if self.observed_facts(host).is_some() {
            return Ok(());
        }
        // The whole timeout was used up: do not wait again.
        if let Some(why) = self.observations().silent.get(host) {
            return Err(Error::new(ErrorKind::Host, format!("inspect {}", host.display_name())).because(why));
        }
        let inspected = async {
            self.connected_new(host, known).await?;
            self.inspect(host, None).await.map(|_| ())
        };
        inspected.await.inspect_err(|error| {
            self.observations().silent.insert(host.clone(), error.to_string());
        })
    }

    /// The same for all hosts concurrently: the firewall of one depends on the addresses of the others.
    pub(super) async fn observe_all_new(&self, known: &ClusterState) -> Result<()> {
        let hosts = self.host_keys();
        let inspections = hosts.iter().map(|host| self.observe_new(host, known));
        futures_util::future::try_join_all(inspections).await.map(|_| ())
    }

    /// Discards what was observed on a host, before another is created under its key.
    pub(super) async fn forget(&self, host: &Key, ledger: &Ledger) -> Result<()> {
        if !self.makes_hosts() {
            return Ok(());
        }
        {
            let mut observations = self.observations();
            observations.places.remove(host);
            observations.by_host.remove(host);
            observations.ports.remove(host);
            observations.silent.remove(host);
            observations.last_observed = None;
        }
        self.config.connector.forget(host).await;
        ledger.note_host(host, |host| host.facts = None)
    }

    /// The nodes of the spec on these hosts; none while a host has no facts.
    pub(super) fn nodes(&self, survey: &Survey) -> Result<Vec<NodeSpec>> {
        let nodes = self.nodes_on(survey).map_err(|(path, sentence)| {
            Error::new(ErrorKind::Spec, format!("lay out the nodes ({path})")).because(sentence)
        })?;
        Ok(nodes.unwrap_or_default())
    }

    /// The ports of a host: chosen once and kept, unless nothing of ours runs there and another program has taken one
    /// of them.
    pub(super) fn ports_of(&self, known: &ClusterState, host: &Key, facts: &Facts) -> HostPorts {
        let mut observations = self.observations();
        let runs = |one: &HostObservation| one.containers.iter().any(Container::is_running);
        let idle = observations.by_host.get(host).is_some_and(|one| !runs(one));
        let mut taken = taken(facts);
        // Hosts may share a machine, and be inspected before any of them runs: ports chosen for another are taken.
        if observations.places.get(host).is_some_and(|place| address_of(place, facts) == LOOPBACK) {
            let others = self.host_keys().into_iter().filter(|other| other != host);
            let ports =
                |other: Key| observations.ports.get(&other).cloned().or_else(|| known.host(&other)?.ports.clone());
            taken.extend(others.filter_map(ports).map(|ports| ports.ray));
        }
        let free = |ports: &HostPorts| !idle || ports.all().iter().all(|port| !taken.contains(port));
        let chosen = observations.ports.get(host).cloned().or_else(|| known.host(host)?.ports.clone().filter(free));
        let ports = chosen.unwrap_or_else(|| self.runtime().choose_ports(&taken));
        observations.ports.insert(host.clone(), ports.clone());
        ports
    }

    /// Claims the ports on all hosts, once per command: workers need to know where the head listens.
    pub(super) async fn claim_ports(&self, known: &ClusterState, pages: &Pages) -> Result<()> {
        let mut are_claimed = self.claiming.lock().await;
        if *are_claimed {
            return Ok(());
        }
        let survey = self.survey(known);
        let hosts: Vec<Key> = survey.keys().cloned().collect();
        let claims = hosts.iter().map(|host| self.claim_ports_on(host, &survey, pages));
        let claimed = futures_util::future::try_join_all(claims).await?;
        self.observations()
            .ports
            .extend(hosts.into_iter().zip(claimed).filter_map(|(host, ports)| Some((host, ports?))));
        *are_claimed = true;
        Ok(())
    }

    /// Claims the ports again, when a node did not start on them; false if they are still the same.
    pub(super) async fn claim_other_ports(&self, host: &Key, known: &ClusterState, pages: &Pages) -> Result<bool> {
        let before = self.observations().ports.get(host).cloned();
        *self.claiming.lock().await = false;
        self.claim_ports(known, pages).await?;
        Ok(self.observations().ports.get(host) != before.as_ref())
    }

    /// Refuses a dashboard port that another program uses, before anything is changed.
    pub(super) async fn refuse_taken_port(&self) -> Result<()> {
        let host = Key::host(0);
        let Some(port) = self.config.spec.ray.head.dashboard_port else { return Ok(()) };
        let is_taken = self.observed_facts(&host).is_some_and(|facts| taken(&facts).contains(&port));
        let tag = self.config.scope.tag(&host).to_string();
        let script = self.runtime().holder_script(&tag, &self.folders(&host), port);
        let Some(script) = script.filter(|_| is_taken) else { return Ok(()) };
        self.runtime().refused(&self.script(&host, "inspect the ports of", &script).await?)
    }

    async fn claim_ports_on(&self, host: &Key, survey: &Survey, pages: &Pages) -> Result<Option<HostPorts>> {
        let nodes = self.nodes(survey)?;
        let script = self.with_request(&nodes, survey, pages, |request| {
            let input = request.hosts.iter().find(|input| input.key == *host);
            Ok(input.and_then(|input| self.runtime().claim_script(request, input)))
        })?;
        let Some(script) = script else { return Ok(None) };
        let lines = self.script(host, "find ports on", &script).await?;
        self.with_request(&nodes, survey, pages, |request| {
            let input = request.hosts.iter().find(|input| input.key == *host).ok_or_else(|| no_place(host))?;
            self.runtime().claimed(request, input, &lines)
        })
        .map(Some)
    }
}

#[async_trait]
impl World for ProjectWorld {
    async fn observe(&self, known: &ClusterState) -> Result<Observed> {
        self.observe_all(known).await
    }

    async fn perform(&self, operation: &Operation, ledger: &Ledger) -> Result<()> {
        let key = &operation.key;
        match &operation.action {
            Action::Acquire { request } => self.acquire(key, request, ledger).await,
            Action::Await { request, id } => self.wait_for(key, request, id, ledger).await,
            Action::Update { request, .. } => {
                Err(Error::new(ErrorKind::Unsupported, format!("change {}", request.key))
                    .because("what providers of hosts have is made again instead"))
            }
            Action::Prepare { .. } => self.while_there(key, self.prepare(key, ledger)).await,
            Action::SetFirewall { .. } => self.while_there(key, self.set_firewall(key, ledger)).await,
            Action::Fill { .. } => self.while_there(key, self.fill(key, ledger)).await,
            Action::Deploy { host, .. } => self.while_there(host, self.deploy(key, host, ledger)).await,
            Action::StopProject { host } => self.stop_project(key, host, ledger).await,
            Action::Clean { host } => self.clean(host).await,
            Action::Release { resource } => self.config.provider.release(&self.config.scope, resource).await,
        }
    }

    fn costs_from(&self, _request: &ResourceRequest) -> Option<jiff::Timestamp> {
        self.observations().start.filter(|start| *start > jiff::Timestamp::now())
    }

    fn consistency_delay(&self) -> Duration {
        self.config.provider.capability().consistency_delay
    }
}
