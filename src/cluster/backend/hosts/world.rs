//! The real world of a cluster of projects: hosts by SSH, one program at a time on each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::connector::HostConnector;
use super::expected::{LOOPBACK, Survey, address_of, taken};
use super::goal::no_place;
use super::observe::has_facts;
use crate::engine::{Cancel, Ledger, World};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::event::Bus;
use crate::host::Host;
use crate::name::{Key, Scope};
use crate::plan::{Action, Observed, Operation};
use crate::playbook::Facts;
use crate::provider::{GpuOffer, HostPlace, HostRequest, ObservedResource, Provider, ResourceRequest};
use crate::render::Library;
use crate::runtime::project::{self, CheckLine, CleanOptions, Container, HostFolders, ProjectRuntime};
use crate::secret::Secrets;
use crate::spec::{NodeSpec, Spec};
use crate::state::{ClusterState, HostPorts, Pages, Paths};
use crate::util::human;

/// How long a host that stands there may take to answer.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// What a world is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To see what is there, and to change it; looking at a host runs its checks as well.
    Check,
    /// To see what is there.
    Inspect,
    /// To see what runs, and nothing else.
    Glance,
    /// To remove everything; what cleaning leaves.
    Remove(CleanOptions),
}

/// What the world needs to know.
pub(super) struct ProjectWorldConfig {
    /// Whose and which cluster.
    pub(super) scope: Scope,
    /// What is asked for.
    pub(super) spec: Spec,
    /// Where its hosts come from.
    pub(super) provider: Box<dyn Provider>,
    /// How they are reached.
    pub(super) connector: Arc<dyn HostConnector>,
    /// Playbooks and templates.
    pub(super) library: Library,
    /// The user's folders on this machine.
    pub(super) paths: Paths,
    /// The cluster's credentials.
    pub(super) secrets: Secrets,
    /// What it is opened for.
    pub(super) purpose: Purpose,
    /// Who is told.
    pub(super) events: Bus,
    /// Whether to go on.
    pub(super) cancel: Cancel,
}

/// What was seen of one host in this command.
#[derive(Debug, Clone, Default)]
pub(super) struct HostObservation {
    pub(super) facts: Facts,
    pub(super) checks: Vec<CheckLine>,
    pub(super) containers: Vec<Container>,
}

/// What this command has learned.
#[derive(Debug, Default)]
pub(super) struct Observations {
    pub(super) hosts: Option<Vec<HostRequest>>,
    /// The GPUs that the provider promises of each host.
    pub(super) promised: BTreeMap<Key, Vec<GpuOffer>>,
    pub(super) start: Option<jiff::Timestamp>,
    pub(super) end: Option<jiff::Timestamp>,
    pub(super) places: BTreeMap<Key, HostPlace>,
    pub(super) seen: BTreeMap<Key, HostObservation>,
    ports: BTreeMap<Key, HostPorts>,
    pub(super) pages: Option<Pages>,
    pub(super) kept: Vec<String>,
    pub(super) missed: BTreeSet<String>,
    /// How many ports that were ours were tried when nothing ran any more, and on how many somebody listens.
    pub(super) tried_ports: usize,
    pub(super) open_ports: usize,
    /// Hosts that did not answer when they were to be looked at first, and why.
    silent: BTreeMap<Key, String>,
    /// Whose turn it is to look at a host first.
    turns: BTreeMap<Key, Arc<tokio::sync::Mutex<()>>>,
    /// What the provider was last seen to have, by this command.
    pub(super) last_observed: Option<(tokio::time::Instant, Vec<ObservedResource>)>,
}

/// Hosts with projects for real.
pub(super) struct ProjectWorld {
    pub(super) config: ProjectWorldConfig,
    observations: Mutex<Observations>,
    pub(super) asking: tokio::sync::Mutex<()>,
    /// Whether ports are claimed on all hosts.
    claiming: tokio::sync::Mutex<bool>,
}

impl ProjectWorld {
    /// Makes it; nothing is touched.
    pub(super) fn new(config: ProjectWorldConfig) -> Self {
        Self {
            config,
            observations: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            claiming: tokio::sync::Mutex::default(),
        }
    }

    /// What a host told in this command.
    pub(super) fn observed_facts(&self, host: &Key) -> Option<Facts> {
        self.observations().seen.get(host).map(|seen| seen.facts.clone())
    }

    /// What a host's checks saw in this command; none when they did not run.
    pub(super) fn observed_checks(&self, host: &Key) -> Vec<CheckLine> {
        self.observations().seen.get(host).map(|seen| seen.checks.clone()).unwrap_or_default()
    }

    /// Writes down which boot of each host it was that was proven; a later one is told as a restart.
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

    /// The containers that were seen on a host in this command.
    pub(super) fn observed_containers(&self, host: &Key) -> Vec<Container> {
        self.observations().seen.get(host).map(|seen| seen.containers.clone()).unwrap_or_default()
    }

    /// Where a host is.
    pub(super) fn place_of(&self, host: &Key) -> Option<HostPlace> {
        self.observations().places.get(host).cloned()
    }

    /// What cleaning left on purpose.
    pub(super) fn kept(&self) -> Vec<String> {
        self.observations().kept.clone()
    }

    /// The nodes of which something may run on unseen.
    pub(super) fn missed(&self) -> BTreeSet<String> {
        self.observations().missed.clone()
    }

    pub(super) fn observations(&self) -> MutexGuard<'_, Observations> {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where things lie on a host.
    pub(super) fn folders(&self, host: &Key) -> HostFolders {
        match self.place_of(host) {
            Some(HostPlace::Local { folder, claim }) => HostFolders::here(&folder, claim, &self.config.paths),
            Some(HostPlace::Ssh { .. }) | None => self.runtime().folders_of(&self.config.scope.tag(host).to_string()),
        }
    }

    pub(super) fn home(&self, host: &Key) -> String {
        self.folders(host).home
    }

    /// How Ray runs on the hosts.
    pub(super) fn runtime(&self) -> &'static dyn ProjectRuntime {
        project::of(self.config.spec.runtime)
    }

    /// What is on a host goes with it: there is nothing to look for, and nothing to clean.
    pub(super) fn leaves_no_trace(&self) -> bool {
        matches!(self.config.purpose, Purpose::Remove(_)) && self.config.provider.capability().hosts_vanish
    }

    pub(super) async fn connected(&self, host: &Key) -> Result<Arc<dyn Host>> {
        let place = self.place_of(host).ok_or_else(|| no_place(host))?;
        self.config.connector.host(host, &place, &self.home(host), ANSWERS_WITHIN).await
    }

    /// A host that was just made may take as long as the spec says, or else its provider.
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
            // What is told at once does not pass by waiting longer.
            if !is_new || begun.elapsed() < wait {
                return error;
            }
            // The whole of its time was waited for: to wait once more would double it.
            error
                .status(Status::Permanent)
                .because(format!("it did not answer within {} (`timeouts.boot`)", human::duration(wait)))
                .hint("the provider says that it runs: more time for slow hosts is `timeouts: {boot: 45m}` in the spec")
        })
    }

    /// Looks at a host that has told nothing yet, once, whoever asks for it.
    pub(super) async fn observe_new(&self, host: &Key, known: &ClusterState) -> Result<()> {
        let turn = Arc::clone(self.observations().turns.entry(host.clone()).or_default());
        let _turn = turn.lock().await;
        if self.observed_facts(host).is_some() {
            return Ok(());
        }
        // The whole of its time was waited for: nobody waits for it again.
        if let Some(why) = self.observations().silent.get(host) {
            return Err(Error::new(ErrorKind::Host, format!("learn where {} is", host.display_name())).because(why));
        }
        let looked = async {
            self.connected_new(host, known).await?;
            self.inspect(host, None).await.map(|_| ())
        };
        looked.await.inspect_err(|error| {
            self.observations().silent.insert(host.clone(), error.to_string());
        })
    }

    /// The same for all of them at once: what one lets in depends on what the others are.
    pub(super) async fn observe_all_new(&self, known: &ClusterState) -> Result<()> {
        let hosts = self.host_keys();
        let looks = hosts.iter().map(|host| self.observe_new(host, known));
        futures_util::future::try_join_all(looks).await.map(|_| ())
    }

    /// What was learned of the host of this key is no more: another will be there.
    pub(super) async fn forget(&self, host: &Key, ledger: &Ledger) -> Result<()> {
        if !self.makes_hosts() {
            return Ok(());
        }
        {
            let mut observations = self.observations();
            observations.places.remove(host);
            observations.seen.remove(host);
            observations.ports.remove(host);
            observations.silent.remove(host);
            observations.last_observed = None;
        }
        self.config.connector.forget(host).await;
        ledger.note_host(host, |host| host.facts = None)
    }

    /// The nodes of the spec; while a host has not told what it is, those of the others.
    pub(super) fn nodes(&self, survey: &Survey) -> Result<Vec<NodeSpec>> {
        let nodes = self.nodes_on(survey).map_err(|(path, sentence)| {
            Error::new(ErrorKind::Spec, format!("lay out the nodes ({path})")).because(sentence)
        })?;
        Ok(nodes.unwrap_or_default())
    }

    /// The ports of what runs on a host: chosen once, then kept; chosen anew when nothing of ours runs there and somebody else
    /// took one of them meanwhile.
    pub(super) fn ports_of(&self, known: &ClusterState, host: &Key, facts: &Facts) -> HostPorts {
        let mut observations = self.observations();
        let runs = |seen: &HostObservation| seen.containers.iter().any(|container| container.state == "running");
        let idle = observations.seen.get(host).is_some_and(|seen| !runs(seen));
        let mut taken = taken(facts);
        // Hosts may share a machine, and be looked at before any of them runs: what was chosen for another is taken.
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

    /// Claims the ports of all hosts on them, once in a command: a worker is told where its head listens.
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

    /// Refuses a port for the dashboard on which somebody listens who is not this cluster, before anything is changed.
    pub(super) async fn refuse_taken_port(&self) -> Result<()> {
        let host = Key::host(0);
        let Some(port) = self.config.spec.ray.head.dashboard_port else { return Ok(()) };
        let is_taken = self.observed_facts(&host).is_some_and(|facts| taken(&facts).contains(&port));
        let tag = self.config.scope.tag(&host).to_string();
        let script = self.runtime().holder_script(&tag, &self.folders(&host), port);
        let Some(script) = script.filter(|_| is_taken) else { return Ok(()) };
        self.runtime().refused(&self.script(&host, "look at the ports of", &script).await?)
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
            Action::Prepare { .. } => self.while_there(key, self.prepare(key, ledger)).await,
            Action::SetFirewall { .. } => self.while_there(key, self.set_firewall(key, ledger)).await,
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
