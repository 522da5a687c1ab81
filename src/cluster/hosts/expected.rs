//! The expected content of each host, computed from the spec and the facts of the hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::goal::no_place;
use super::world::ProjectWorld;
use crate::error::Result;
use crate::name::Key;
use crate::plan::{Machine, desired, limits, small_shared_memory};
use crate::playbook::{Facts, Stage};
use crate::provider::HostPlace;
use crate::runtime::project::{Bundle, DeployRequest, Deployment, Filling, HostInput, Others, PrepareRequest};
use crate::secret::Secrets;
use crate::spec::{NodeSpec, external_credentials};
use crate::state::{ClusterState, HostNotes, HostPorts, Pages};

/// A demand that the hosts cannot meet: the path in the spec and the reason.
pub(super) type Impossible = (String, String);

/// The number of a host, from its key.
pub(super) fn number(host: &Key) -> usize {
    host.as_str().trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or_default()
}

/// The key of a host's project.
pub(super) fn project_of(host: &Key) -> Key {
    Key::project(number(host))
}

/// One host, as stages need it.
#[derive(Debug, Clone)]
pub(super) struct Surveyed {
    /// Its facts.
    pub(super) facts: Facts,
    /// The address at which the other hosts reach it.
    pub(super) address: String,
    /// The ports of what runs there.
    pub(super) ports: HostPorts,
}

/// The expected content of one host, as last brought up.
pub(super) struct Expected {
    pub(super) prepare: Stage,
    /// The firewall stage, if there is a separate one.
    pub(super) firewall: Option<Stage>,
    /// The stage that fills its data sets, if there are any.
    pub(super) data: Option<Stage>,
    /// What it runs; `None` if nothing was deployed yet.
    pub(super) deployment: Option<Deployment>,
}

impl Expected {
    /// All stages, in order.
    pub(super) fn stages(&self) -> Vec<&Stage> {
        let deployed = self.deployment.as_ref().map(|deployment| &deployment.stage);
        [Some(&self.prepare), self.firewall.as_ref(), self.data.as_ref(), deployed].into_iter().flatten().collect()
    }
}

/// The hosts whose facts are known.
pub(super) type Survey = BTreeMap<Key, Surveyed>;

impl ProjectWorld {
    /// The keys of the spec's hosts, in its order.
    pub(super) fn host_keys(&self) -> Vec<Key> {
        (0..self.config.spec.hosts.len()).map(Key::host).collect()
    }

    /// The hosts with facts observed now, or else recorded when they were prepared.
    pub(super) fn survey(&self, known: &ClusterState) -> Survey {
        let mut survey = Survey::new();
        for key in self.host_keys() {
            let Some(facts) = self.observed_facts(&key).or_else(|| known.host(&key)?.facts.clone()) else { continue };
            let address = match self.place_of(&key) {
                Some(place) => address_of(&place, &facts),
                None => known.host(&key).and_then(|host| host.address.clone()).unwrap_or_default(),
            };
            let ports = self.ports_of(known, &key, &facts);
            survey.insert(key, Surveyed { facts, address, ports });
        }
        survey
    }

    /// The hosts with recorded facts; `None` if a host has none.
    fn recalled(&self, known: &ClusterState) -> Option<Survey> {
        let recall = |key: &Key| {
            let HostNotes { facts, address, ports, .. } = known.host(key)?.clone();
            Some(Surveyed { facts: facts?, address: address?, ports: ports? })
        };
        self.host_keys().into_iter().map(|key| Some((key.clone(), recall(&key)?))).collect()
    }

    /// The nodes of the spec on these hosts; `None` while a host has no facts.
    pub(super) fn nodes_on(&self, survey: &Survey) -> Result<Option<Vec<NodeSpec>>, Impossible> {
        let mut machines = Vec::new();
        for key in self.host_keys() {
            let Some(Surveyed { facts, .. }) = survey.get(&key) else { return Ok(None) };
            machines.push((key, Machine::of(facts, self.config.spec.runtime)));
        }
        desired(&self.config.spec, &machines).map(Some)
    }

    /// What limits the hosts, and what they do not hold: notes and warnings, once the facts of all are known.
    pub(super) fn of_capacity(&self, known: &ClusterState) -> Option<(Vec<String>, Vec<String>)> {
        let survey = self.survey(known);
        let nodes = self.nodes_on(&survey).ok()??;
        let machine =
            |(key, host): (&Key, &Surveyed)| (key.clone(), Machine::of(&host.facts, self.config.spec.runtime));
        let machines: Vec<(Key, Machine)> = survey.iter().map(machine).collect();
        Some((limits(&machines), small_shared_memory(&machines, &nodes)))
    }

    /// Reports the same; returns whether it is known.
    pub(super) fn report_capacity(&self, known: &ClusterState) -> bool {
        let Some((notes, warnings)) = self.of_capacity(known) else { return false };
        notes.into_iter().for_each(|note| self.config.events.note(note));
        warnings.into_iter().for_each(|warning| self.config.events.warn(warning));
        true
    }

    /// Whether setting the firewall is a separate operation: created hosts know each other's addresses only once all
    /// of them exist. For standing hosts, preparation does it all.
    pub(super) fn has_firewall(&self) -> bool {
        let hosts = self.hosts();
        self.runtime().opens_ports()
            && hosts.len() > 1
            && hosts.iter().any(|host| self.config.provider.standing(&self.config.scope, host).is_none())
    }

    /// The stage that prepares a host of this survey.
    pub(super) fn prepare_stage(&self, host: &Key, survey: &Survey, nodes: &[NodeSpec]) -> Result<Stage> {
        self.with_host(host, survey, nodes, self.others(), |request| self.runtime().preparation(request))
    }

    /// How the data folder of a host of this survey is filled; `None` if the spec has nothing for it.
    pub(super) fn filling(&self, host: &Key, survey: &Survey, nodes: &[NodeSpec]) -> Result<Option<Filling>> {
        if self.config.files.is_none() {
            return Ok(None);
        }
        self.with_host(host, survey, nodes, self.others(), |request| self.runtime().filling(request))
    }

    /// What is known about a host's peers when it is prepared.
    fn others(&self) -> Others {
        if self.host_keys().len() < 2 {
            Others::None
        } else if self.has_firewall() {
            Others::Later
        } else {
            Others::Known
        }
    }

    /// The stage that opens a host's ports to the others, which must all be in this survey.
    pub(super) fn firewall_stage(&self, host: &Key, survey: &Survey, nodes: &[NodeSpec]) -> Result<Stage> {
        self.with_host(host, survey, nodes, Others::Known, |request| self.runtime().firewall(request))
    }

    fn with_host<T>(
        &self,
        host: &Key,
        survey: &Survey,
        nodes: &[NodeSpec],
        others: Others,
        render: impl FnOnce(&PrepareRequest<'_>) -> Result<T>,
    ) -> Result<T> {
        let hosts = self.inputs(survey);
        let own = hosts.iter().find(|input| input.key == *host).ok_or_else(|| no_place(host))?;
        let (spec, library) = (&self.config.spec, &self.config.library);
        let files: Vec<Bundle> = self.config.files.iter().flatten().map(|files| files.bundle.clone()).collect();
        render(&PrepareRequest { spec, nodes, hosts: &hosts, others, host: own, library, files: &files })
    }

    /// One deployment for each host of the survey.
    pub(super) fn deployments(&self, nodes: &[NodeSpec], survey: &Survey, pages: &Pages) -> Result<Vec<Deployment>> {
        self.with_request(nodes, survey, pages, |request| self.runtime().deployments(request))
    }

    /// The deployment of one host; the others may still be starting.
    pub(super) fn deployment(&self, host: &Key, survey: &Survey, pages: &Pages) -> Result<Deployment> {
        let nodes = self.nodes(survey)?;
        self.with_request(&nodes, survey, pages, |request| self.runtime().deployment(request, host))
    }

    pub(super) fn with_request<T>(
        &self,
        nodes: &[NodeSpec],
        survey: &Survey,
        pages: &Pages,
        render: impl FnOnce(&DeployRequest<'_>) -> Result<T>,
    ) -> Result<T> {
        let hosts = self.inputs(survey);
        let external = match self.config.spec.external_store() {
            Some(store) => Some(external_credentials(&store.credentials_file, &store.profile)?),
            None => None,
        };
        let secrets = Secrets { external, ..self.config.secrets.clone() };
        render(&DeployRequest {
            spec: &self.config.spec,
            scope: &self.config.scope,
            nodes,
            hosts: &hosts,
            pages,
            secrets: &secrets,
            library: &self.config.library,
        })
    }

    /// The hosts of a survey as the input of a runtime.
    fn inputs(&self, survey: &Survey) -> Vec<HostInput> {
        let input = |(key, host): (&Key, &Surveyed)| HostInput {
            key: key.clone(),
            tag: self.config.scope.tag(key).to_string(),
            facts: host.facts.clone(),
            address: host.address.clone(),
            ports: host.ports.clone(),
            folders: self.folders(key),
            site: self.site(key),
        };
        survey.iter().map(input).collect()
    }

    /// The expected content of all hosts, as last brought up; empty if the state is incomplete.
    pub(super) fn remembered(&self, known: &ClusterState) -> BTreeMap<Key, Expected> {
        let recall = || -> Option<BTreeMap<Key, Expected>> {
            let survey = self.recalled(known)?;
            let nodes = self.nodes_on(&survey).ok()??;
            let pages = known.pages().cloned();
            let deployments =
                pages.and_then(|pages| self.deployments(&nodes, &survey, &pages).ok()).unwrap_or_default();
            let mut remembered = BTreeMap::new();
            for host in survey.keys().cloned() {
                let deployment = deployments.iter().find(|deployment| deployment.host == host).cloned();
                let prepare = self.prepare_stage(&host, &survey, &nodes).ok()?;
                let firewall = match self.has_firewall() {
                    true => Some(self.firewall_stage(&host, &survey, &nodes).ok()?),
                    false => None,
                };
                let data = self.filling(&host, &survey, &nodes).ok()?.map(|filling| filling.stage);
                remembered.insert(host, Expected { prepare, firewall, data, deployment });
            }
            Some(remembered)
        };
        recall().unwrap_or_default()
    }
}

/// The address of hosts that share one machine.
pub(super) const LOOPBACK: &str = "127.0.0.1";

/// The address at which the other hosts of the cluster reach a host.
pub(super) fn address_of(place: &HostPlace, facts: &Facts) -> String {
    let HostPlace::Ssh { target, .. } = place else { return LOOPBACK.to_owned() };
    let node: Option<Ipv4Addr> = target.node.parse().ok();
    // The hosts of a sandbox share one machine, each with its own loopback address.
    if node.is_some_and(|node| node.is_loopback()) {
        return LOOPBACK.to_owned();
    }
    if let Some(address) = &target.private_address {
        return address.clone();
    }
    if node.is_some_and(|node| facts.addresses.contains(&node)) {
        return target.node.clone();
    }
    facts.addresses.first().map_or_else(|| target.node.clone(), ToString::to_string)
}

/// The ports in use on a host.
pub(super) fn taken(facts: &Facts) -> BTreeSet<u16> {
    facts.listening.iter().map(std::net::SocketAddr::port).collect()
}
