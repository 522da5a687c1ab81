//! The hosts of a cluster as this command reaches and finds them: places, connections, inspections, ports. All that a
//! command learns about hosts is here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::connector::HostConnector;
use super::layout::{self, HostContent, no_place};
use crate::cluster::substrate::Look;
use crate::error::{Error, ErrorKind, LeftBehind, Result, Status};
use crate::host::{ExecEnd, Host, SshTarget};
use crate::name::{Key, Scope};
use crate::playbook::{self, Facts, Inspection};
use crate::provider::{HostPlace, Provider, Site};
use crate::render::{quote, quote_path};
use crate::runtime;
use crate::runtime::project::{
    self, CheckLine, CleanOptions, Container, HostFolders, HostInput, Observation, ProjectRuntime,
};
use crate::spec::Spec;
use crate::state::{ClusterState, HostPorts, Paths};
use crate::util::human;

/// Connect timeout of a host that is already up.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// The address of hosts that share one machine.
pub(super) const LOOPBACK: &str = "127.0.0.1";

/// What one inspection found on a host.
#[derive(Debug, Clone, Default)]
struct Inspected {
    facts: Facts,
    checks: Vec<CheckLine>,
    containers: Vec<Container>,
}

/// What cleaning a host found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cleaned {
    /// What was left on purpose.
    pub(super) kept: Vec<String>,
    /// The nodes that may have left a process behind.
    pub(super) missed: BTreeSet<String>,
    /// How many of our ports were tried afterwards.
    pub(super) tried_ports: usize,
    /// How many of them are still in use.
    pub(super) open_ports: usize,
}

/// What this command knows of one host by now.
#[derive(Debug, Default)]
struct HostRecord {
    place: Option<HostPlace>,
    inspected: Option<Inspected>,
    /// Its ports: chosen once and kept.
    ports: Option<HostPorts>,
    /// Why it did not answer its first inspection.
    silent: Option<String>,
    /// Held during its first inspection.
    turn: Arc<tokio::sync::Mutex<()>>,
    cleaned: Cleaned,
}

/// The hosts of one cluster.
pub(super) struct Fleet {
    scope: Scope,
    spec: Spec,
    hosts: Vec<Key>,
    runtime: &'static dyn ProjectRuntime,
    connector: Arc<dyn HostConnector>,
    paths: Paths,
    /// The site of hosts that are not there yet, or no more.
    site: Site,
    /// How long a host that was just created may take to answer.
    boot: Duration,
    look: Look,
    replaces_host_keys: bool,
    records: Mutex<BTreeMap<Key, HostRecord>>,
    /// Whether ports have been claimed on all hosts.
    are_claimed: tokio::sync::Mutex<bool>,
}

impl Fleet {
    /// The hosts of a spec, none of them connected.
    pub(super) fn new(
        scope: Scope,
        spec: &Spec,
        provider: &dyn Provider,
        connector: Arc<dyn HostConnector>,
        paths: Paths,
        look: Look,
    ) -> Self {
        Self {
            scope,
            spec: spec.clone(),
            hosts: layout::keys(spec),
            runtime: runtime::of(spec.runtime),
            connector,
            paths,
            site: provider.site(),
            boot: match &spec.timeouts.boot {
                Some(boot) => boot.0,
                None => ANSWERS_WITHIN.max(provider.capability().boot),
            },
            look,
            replaces_host_keys: provider.capability().host_key_in_user_data,
            records: Mutex::default(),
            are_claimed: tokio::sync::Mutex::default(),
        }
    }

    /// The keys of the spec's hosts, in its order.
    pub(super) fn hosts(&self) -> &[Key] {
        &self.hosts
    }

    /// How closely hosts are inspected.
    pub(super) fn look(&self) -> Look {
        self.look
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<Key, HostRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of<T>(&self, host: &Key, what: impl FnOnce(&HostRecord) -> T) -> Option<T> {
        self.records().get(host).map(what)
    }

    fn inspected<T>(&self, host: &Key, what: impl FnOnce(&Inspected) -> T) -> Option<T> {
        self.records().get(host)?.inspected.as_ref().map(what)
    }

    /// Facts collected from a host during this command.
    pub(super) fn facts(&self, host: &Key) -> Option<Facts> {
        self.inspected(host, |inspected| inspected.facts.clone())
    }

    /// Check results from a host during this command; empty if they did not run.
    pub(super) fn checks(&self, host: &Key) -> Vec<CheckLine> {
        self.inspected(host, |inspected| inspected.checks.clone()).unwrap_or_default()
    }

    /// Containers found on a host during this command.
    pub(super) fn containers(&self, host: &Key) -> Vec<Container> {
        self.inspected(host, |inspected| inspected.containers.clone()).unwrap_or_default()
    }

    /// Records the facts of a host that was just prepared: nothing of the cluster runs there yet.
    pub(super) fn prepared(&self, host: &Key, facts: Facts) {
        let inspected = Inspected { facts, ..Inspected::default() };
        self.records().entry(host.clone()).or_default().inspected = Some(inspected);
    }

    /// Records the check results of a host that was just deployed.
    pub(super) fn deployed(&self, host: &Key, checks: Vec<CheckLine>) {
        if let Some(inspected) = self.records().get_mut(host).and_then(|record| record.inspected.as_mut()) {
            inspected.checks = checks;
        }
    }

    /// What cleaning has found on all hosts.
    pub(super) fn cleaned(&self) -> Cleaned {
        let mut all = Cleaned::default();
        for Cleaned { kept, missed, tried_ports, open_ports } in self.records().values().map(|record| &record.cleaned) {
            all.kept.extend(kept.iter().cloned());
            all.missed.extend(missed.iter().cloned());
            all.tried_ports += tried_ports;
            all.open_ports += open_ports;
        }
        all
    }

    /// The place of a host, if known.
    pub(super) fn place(&self, host: &Key) -> Option<HostPlace> {
        self.of(host, |record| record.place.clone())?
    }

    /// The places of all hosts that have one.
    pub(super) fn places(&self) -> BTreeMap<Key, HostPlace> {
        let records = self.records();
        records.iter().filter_map(|(host, record)| Some((host.clone(), record.place.clone()?))).collect()
    }

    /// Records where a host is.
    pub(super) async fn found(&self, host: &Key, place: HostPlace) {
        self.connector.record_place(host, &place).await;
        self.records().entry(host.clone()).or_default().place = Some(place);
    }

    /// Records where all hosts are; others have no place any more.
    pub(super) async fn found_all(&self, places: BTreeMap<Key, HostPlace>) {
        self.records().values_mut().for_each(|record| record.place = None);
        for (host, place) in places {
            self.found(&host, place).await;
        }
    }

    /// Drops everything about a host, before another is created under its key.
    pub(super) async fn forget(&self, host: &Key) {
        self.records().remove(host);
        self.connector.forget(host).await;
    }

    /// The cluster's folders on a host.
    pub(super) fn folders(&self, host: &Key) -> HostFolders {
        match self.place(host) {
            Some(HostPlace::Local { folder, claim }) => HostFolders::here(&folder, claim, &self.paths),
            Some(HostPlace::Ssh { site, .. }) => self.runtime.folders_of(&self.tag(host)).at_site(&site),
            None => self.runtime.folders_of(&self.tag(host)),
        }
    }

    /// The folder of the cluster on a host.
    pub(super) fn home(&self, host: &Key) -> String {
        self.folders(host).home
    }

    /// A host's tag.
    pub(super) fn tag(&self, host: &Key) -> String {
        self.scope.tag(host).to_string()
    }

    /// What is particular about a host's site.
    pub(super) fn site(&self, host: &Key) -> Site {
        match self.place(host) {
            Some(HostPlace::Ssh { site, .. }) => *site,
            Some(HostPlace::Local { .. }) => Site::default(),
            None => self.site.clone(),
        }
    }

    /// The hosts as input of a runtime, with facts found now or else recorded when they were prepared. Hosts without
    /// facts are left out.
    pub(super) fn survey(&self, known: &ClusterState) -> Vec<HostInput> {
        let input = |key: &Key| {
            let facts = self.facts(key).or_else(|| known.host(key)?.facts.clone())?;
            let address = match self.place(key) {
                Some(place) => address_of(&place, &facts),
                None => known.host(key).and_then(|host| host.address.clone()).unwrap_or_default(),
            };
            let ports = self.of(key, |record| record.ports.clone()).flatten();
            let ports = ports.unwrap_or_else(|| self.choice_of_ports(&self.records(), known, key, &facts));
            Some(self.input(key, facts, address, ports))
        };
        sorted(self.hosts.iter().filter_map(input).collect())
    }

    /// The hosts as they were last brought up; `None` if something of one was not recorded.
    pub(super) fn recorded(&self, known: &ClusterState) -> Option<Vec<HostInput>> {
        let input = |key: &Key| {
            let notes = known.host(key)?.clone();
            Some(self.input(key, notes.facts?, notes.address?, notes.ports?))
        };
        self.hosts.iter().map(input).collect::<Option<_>>().map(sorted)
    }

    fn input(&self, key: &Key, facts: Facts, address: String, ports: HostPorts) -> HostInput {
        let (tag, folders, site) = (self.tag(key), self.folders(key), self.site(key));
        HostInput { key: key.clone(), tag, facts, address, ports, folders, site }
    }

    /// Chooses the ports of the hosts that were inspected and have none.
    fn choose_ports_of_inspected(&self, known: &ClusterState) {
        let mut records = self.records();
        for host in &self.hosts {
            let Some(record) = records.get(host) else { continue };
            let (None, Some(inspected)) = (&record.ports, &record.inspected) else { continue };
            let facts = inspected.facts.clone();
            let ports = self.choice_of_ports(&records, known, host, &facts);
            records.entry(host.clone()).or_default().ports = Some(ports);
        }
    }

    /// The recorded ports of a host and those that are missing, unless nothing of ours runs there and another program has
    /// taken one of them; else others.
    fn choice_of_ports(
        &self,
        records: &BTreeMap<Key, HostRecord>,
        known: &ClusterState,
        host: &Key,
        facts: &Facts,
    ) -> HostPorts {
        let record = records.get(host);
        let runs = |one: &Inspected| one.containers.iter().any(Container::is_running);
        let idle = record.and_then(|record| record.inspected.as_ref()).is_some_and(|one| !runs(one));
        let mut taken = taken(facts);
        // Hosts may share a machine, and be inspected before any of them runs: ports chosen for another are taken.
        let place = record.and_then(|record| record.place.as_ref());
        if place.is_some_and(|place| address_of(place, facts) == LOOPBACK) {
            let ports = |other: &Key| {
                let chosen = records.get(other).and_then(|record| record.ports.clone());
                chosen.or_else(|| known.host(other)?.ports.clone())
            };
            let others = self.hosts.iter().filter(|other| *other != host);
            taken.extend(others.filter_map(ports).map(|ports| ports.ray));
        }
        let free = |ports: &HostPorts| !idle || ports.all().iter().all(|port| !taken.contains(port));
        let noted = known.host(host).and_then(|host| host.ports.clone());
        self.runtime.choose_ports(&self.spec, noted.filter(free).unwrap_or_default(), &taken)
    }

    /// Claims ports on all hosts, once per command, with the claims that `claim` makes on each: workers need to know
    /// where the head listens.
    pub(super) async fn claim_ports<C>(&self, claim: impl Fn(Key) -> C) -> Result<()>
    where
        C: Future<Output = Result<Option<HostPorts>>>,
    {
        let mut are_claimed = self.are_claimed.lock().await;
        if *are_claimed {
            return Ok(());
        }
        let claims = self.hosts.iter().map(|host| claim(host.clone()));
        let claimed = futures_util::future::try_join_all(claims).await?;
        let mut records = self.records();
        for (host, ports) in self.hosts.iter().zip(claimed) {
            if let Some(ports) = ports {
                records.entry(host.clone()).or_default().ports = Some(ports);
            }
        }
        *are_claimed = true;
        Ok(())
    }

    /// Lets the next [`Self::claim_ports`] claim once more. Returns the ports of this host so far.
    pub(super) async fn claim_again(&self, host: &Key) -> Option<HostPorts> {
        *self.are_claimed.lock().await = false;
        self.ports(host)
    }

    /// The ports that were chosen or claimed on a host.
    pub(super) fn ports(&self, host: &Key) -> Option<HostPorts> {
        self.of(host, |record| record.ports.clone())?
    }

    /// Connects to a host.
    pub(super) async fn connect(&self, host: &Key) -> Result<Arc<dyn Host>> {
        let place = self.place(host).ok_or_else(|| no_place(host))?;
        self.connector.host(host, &place, &self.home(host), ANSWERS_WITHIN).await
    }

    /// Connects to a host whose firewall may have been set: a new connection proves that it lets us in, and carries the
    /// next stage.
    pub(super) async fn reconnect(&self, host: &Key) -> Result<Arc<dyn Host>> {
        if self.hosts.len() < 2 {
            return self.connect(host).await;
        }
        let place = self.place(host).ok_or_else(|| no_place(host))?;
        self.connector.fresh(host, &place, &self.home(host), ANSWERS_WITHIN).await
    }

    /// Connects to a host that may still be booting: with the timeout of the spec, or else of its provider.
    pub(super) async fn connect_new(&self, host: &Key, known: &ClusterState) -> Result<Arc<dyn Host>> {
        if has_facts(known, host) {
            return self.connect(host).await;
        }
        let place = self.place(host).ok_or_else(|| no_place(host))?;
        let (wait, begun) = (self.boot, Instant::now());
        self.connector.host(host, &place, &self.home(host), wait).await.map_err(|error| {
            // An error before the timeout is not a matter of waiting longer.
            if begun.elapsed() < wait {
                return error;
            }
            // The whole timeout is used up: a retry would double it.
            error
                .status(Status::Permanent)
                .because(format!("it did not answer within {} (`timeouts.boot`)", human::duration(wait)))
                .hint("the provider reports it as running; for slow hosts set `timeouts: {boot: 45m}` in the spec")
        })
    }

    /// Whether hosts have a host key from their user data until they have one of their own.
    pub(super) fn replaces_host_keys(&self) -> bool {
        self.replaces_host_keys
    }

    /// Has a host use a host key of its own, if the one that it was given can be read by others. Nothing happens to a host
    /// that is not connected.
    pub(super) async fn give_own_key(&self, host: &Key) -> Result<()> {
        if !self.replaces_host_keys {
            return Ok(());
        }
        self.connector.give_own_key(host).await
    }

    /// Inspects a host that has not been inspected yet; concurrent callers share one inspection.
    pub(super) async fn inspect_new(&self, host: &Key, known: &ClusterState) -> Result<()> {
        let turn = Arc::clone(&self.records().entry(host.clone()).or_default().turn);
        let _turn = turn.lock().await;
        if self.facts(host).is_some() {
            return Ok(());
        }
        // The whole timeout was used up: do not wait again.
        if let Some(why) = self.of(host, |record| record.silent.clone()).flatten() {
            return Err(Error::new(ErrorKind::Host, format!("inspect {}", host.display_name())).because(why));
        }
        let inspected = async {
            self.connect_new(host, known).await?;
            self.inspect(host, None, known).await.map(|_| ())
        };
        inspected.await.inspect_err(|error| {
            self.records().entry(host.clone()).or_default().silent = Some(error.to_string());
        })?;
        self.choose_ports_of_inspected(known);
        Ok(())
    }

    /// Inspects all hosts that have not been inspected yet, concurrently: the firewall of one depends on the addresses of
    /// the others.
    pub(super) async fn inspect_all_new(&self, known: &ClusterState) -> Result<()> {
        let inspections = self.hosts.iter().map(|host| self.inspect_new(host, known));
        futures_util::future::try_join_all(inspections).await.map(|_| ())
    }

    /// Inspects these hosts concurrently, with what each of them should hold.
    pub(super) async fn inspect_all(
        &self,
        hosts: &[Key],
        content: &BTreeMap<Key, HostContent>,
        known: &ClusterState,
    ) -> Vec<Result<(Inspection, Observation)>> {
        let inspections = hosts.iter().map(|host| self.inspect(host, content.get(host), known));
        let inspections = futures_util::future::join_all(inspections).await;
        self.choose_ports_of_inspected(known);
        inspections
    }

    /// Inspects a host by one exec: its facts, what of ours is on it, and check results if it still has the deployment
    /// that it should have.
    async fn inspect(
        &self,
        host: &Key,
        content: Option<&HostContent>,
        known: &ClusterState,
    ) -> Result<(Inspection, Observation)> {
        let connected = self.connect(host).await?;
        let mut script = self.runtime.inspect_script(&self.tag(host), &self.folders(host));
        let deployment = content.and_then(|content| content.deployment.as_ref());
        if let (Look::Checks { at_most }, Some(deployment)) = (self.look, deployment) {
            // Checks leave out the workers that were stopped by hand.
            let stopped = known.stopped_by_hand();
            let names: Vec<String> = stopped.iter().map(Key::display_name).collect();
            let keys: Vec<&str> = stopped.iter().map(Key::as_str).collect();
            script.push_str(&format!("\nstopped={}\nstopped_keys={}", quote(&names.join(" ")), quote(&keys.join(" "))));
            script.push_str(&format!(
                "\nrecent={}\nif grep -q -x '#digest {}' {} 2>/dev/null; then\n{}\nfi\n",
                at_most.as_secs(),
                deployment.stage.digest(),
                quote_path(&format!("{}/prepared/{}", self.home(host), deployment.stage.name)),
                deployment.checks
            ));
        }
        let inspection = match self.look {
            Look::Running => playbook::glance(connected.as_ref(), &script).await?,
            Look::Stages | Look::Checks { .. } => {
                let stages = content.map(HostContent::stages).unwrap_or_default();
                playbook::inspect(connected.as_ref(), &stages, &script).await?
            }
        };
        let observation = project::parse_observation(&inspection.lines);
        let checks = project::checks_of(&inspection.lines);
        let (facts, containers) = (inspection.facts.clone(), observation.containers.clone());
        self.records().entry(host.clone()).or_default().inspected = Some(Inspected { facts, checks, containers });
        Ok((inspection, observation))
    }

    /// Runs a script on a host and returns its output lines.
    pub(super) async fn run(&self, host: &Key, doing: &str, script: &str) -> Result<Vec<String>> {
        let connected = self.connect(host).await?;
        let mut lines = Vec::new();
        let end = connected.exec(script, &mut |_, line| lines.push(line.to_owned())).await?;
        if end == ExecEnd::Broken {
            return Err(Error::new(ErrorKind::Host, format!("{doing} {}", host.display_name()))
                .because("the connection to the host broke")
                .left(LeftBehind::Unknown));
        }
        Ok(lines)
    }

    /// Cleans a host and records what that found. Returns the lines of the script.
    pub(super) async fn clean(&self, host: &Key, options: CleanOptions) -> Result<Vec<String>> {
        let connected = self.connect(host).await?;
        playbook::end_program(connected.as_ref()).await?;
        connected.end_abandoned().await?;
        let script = self.runtime.clean_script(&self.tag(host), &self.folders(host), options);
        let lines = self.run(host, "clean", &script).await?;
        let name = host.display_name();
        let mut records = self.records();
        let cleaned = &mut records.entry(host.clone()).or_default().cleaned;
        for line in &lines {
            if let Some(kept) = line.strip_prefix("::kept ") {
                cleaned.kept.push(format!("{kept} on {name}"));
            } else if let Some(tried) = line.strip_prefix("::tried ") {
                cleaned.tried_ports += tried.trim().parse::<usize>().unwrap_or_default();
            } else if line.starts_with("::open ") {
                cleaned.open_ports += 1;
            } else if let Some(node) = line.strip_prefix("::unknown") {
                let node = node.trim().parse::<Key>().map_or("a node".to_owned(), |key| key.display_name());
                cleaned.missed.insert(format!("{node} of {name}"));
            }
        }
        Ok(lines)
    }

    /// Whether no node that was found was started after this time.
    pub(super) fn runs_since(&self, time: jiff::Timestamp) -> bool {
        let containers = self.hosts.iter().flat_map(|host| self.containers(host));
        let mut nodes = containers.filter(|container| container.key.is_node());
        nodes.all(|node| node.started_at.parse::<jiff::Timestamp>().map_or(true, |started| started <= time))
    }
}

/// In the order that digests are taken in.
fn sorted(mut hosts: Vec<HostInput>) -> Vec<HostInput> {
    hosts.sort_by(|one, other| one.key.cmp(&other.key));
    hosts
}

/// Whether the current host of this key has recorded facts; those of a predecessor are discarded.
pub(super) fn has_facts(known: &ClusterState, host: &Key) -> bool {
    known.host(host).is_some_and(|host| host.facts.is_some())
}

/// The address at which the other hosts of the cluster reach a host.
fn address_of(place: &HostPlace, facts: &Facts) -> String {
    let HostPlace::Ssh { target, .. } = place else { return LOOPBACK.to_owned() };
    let SshTarget { node, private_address, .. } = target;
    let address: Option<std::net::Ipv4Addr> = node.parse().ok();
    // The hosts of a sandbox share one machine, each with its own loopback address.
    if address.is_some_and(|address| address.is_loopback()) {
        return LOOPBACK.to_owned();
    }
    if let Some(address) = private_address {
        return address.clone();
    }
    if address.is_some_and(|address| facts.addresses.contains(&address)) {
        return node.clone();
    }
    facts.addresses.first().map_or_else(|| node.clone(), ToString::to_string)
}

/// The ports in use on a host.
pub(super) fn taken(facts: &Facts) -> BTreeSet<u16> {
    facts.listening.iter().map(std::net::SocketAddr::port).collect()
}
