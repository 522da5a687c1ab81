//! What each host is to hold, worked out from a spec and from what hosts have told.

use std::collections::{BTreeMap, BTreeSet};

use super::goal::no_place;
use super::world::ProjectWorld;
use crate::error::Result;
use crate::name::Key;
use crate::plan::{Machine, NodeSpec, desired};
use crate::playbook::{Facts, Stage};
use crate::provider::HostPlace;
use crate::runtime::compose::{self, DeployRequest, Deployment, HostInput, HostPorts, Pages, Peers};
use crate::state::ClusterState;

/// A wrong promise: the path in the spec and the sentence.
pub(super) type Impossible = (String, String);

/// The number of a host, from its key.
pub(super) fn number(host: &Key) -> usize {
    host.as_str().trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or_default()
}

/// The key of a host's project.
pub(super) fn project_of(host: &Key) -> Key {
    Key::project(number(host))
}

/// One host, as the stages need it.
#[derive(Debug, Clone)]
pub(super) struct Surveyed {
    /// What it is.
    pub(super) facts: Facts,
    /// The address that the other hosts reach it by.
    pub(super) address: String,
    /// The ports of what runs there.
    pub(super) ports: HostPorts,
}

/// What one host holds when all is as it was last brought up.
pub(super) struct Expected {
    pub(super) prepare: Stage,
    /// What it lets in from the others, where that is a stage of its own.
    pub(super) guard: Option<Stage>,
    pub(super) deployment: Deployment,
}

impl Expected {
    /// Its stages.
    pub(super) fn stages(&self) -> Vec<&Stage> {
        [Some(&self.prepare), self.guard.as_ref(), Some(&self.deployment.stage)].into_iter().flatten().collect()
    }
}

/// All hosts that have told what they are.
pub(super) type Survey = BTreeMap<Key, Surveyed>;

impl ProjectWorld {
    /// The keys of the hosts that the spec asks for, in its order.
    pub(super) fn host_keys(&self) -> Vec<Key> {
        (0..self.config.spec.hosts.len()).map(Key::host).collect()
    }

    /// The hosts by what was seen now, else by what they told when they were prepared.
    pub(super) fn survey(&self, known: &ClusterState) -> Survey {
        let mut survey = Survey::new();
        for key in self.host_keys() {
            let Some(facts) = self.seen_facts(&key).or_else(|| known.note(&key, "facts")) else { continue };
            let address = match self.place_of(&key) {
                Some(place) => address_of(&place, &facts),
                None => known.note(&key, "address").unwrap_or_default(),
            };
            let ports = self.ports_of(known, &key, &facts);
            survey.insert(key, Surveyed { facts, address, ports });
        }
        survey
    }

    /// The hosts by what they told when they were prepared; `None` when one has not.
    fn recalled(&self, known: &ClusterState) -> Option<Survey> {
        let recall = |key: &Key| {
            Some(Surveyed {
                facts: known.note(key, "facts")?,
                address: known.note(key, "address")?,
                ports: known.note(key, "ports")?,
            })
        };
        self.host_keys().into_iter().map(|key| Some((key.clone(), recall(&key)?))).collect()
    }

    /// The nodes of the spec on these hosts; `None` while a host has not told.
    pub(super) fn nodes_on(&self, survey: &Survey) -> Result<Option<Vec<NodeSpec>>, Impossible> {
        let mut machines = Vec::new();
        for key in self.host_keys() {
            let Some(Surveyed { facts, .. }) = survey.get(&key) else { return Ok(None) };
            machines.push((key, machine_of(facts)));
        }
        desired(&self.config.spec, &machines).map(Some)
    }

    /// What hosts let in from each other is an operation of its own: they are made, so that where all of them are is known only when
    /// all of them are there. Where they stand there already, one stage does it all.
    pub(super) fn guards(&self) -> bool {
        let hosts = self.hosts();
        hosts.len() > 1 && hosts.iter().any(|host| self.config.provider.standing(host).is_none())
    }

    /// The stage that prepares a host of this survey.
    pub(super) fn prepare_stage(&self, host: &Key, survey: &Survey, nodes: &[NodeSpec]) -> Result<Stage> {
        let own = survey.get(host).ok_or_else(|| no_place(host))?;
        let config = &self.config;
        let tag = config.scope.tag(host).to_string();
        let (addresses, ports) = self.lets_in(host, own, survey, nodes);
        let peers = if self.host_keys().len() < 2 {
            Peers::None
        } else if self.guards() {
            Peers::Later
        } else {
            Peers::Known { addresses: &addresses, ports: &ports }
        };
        let images = compose::host_images(&config.spec, &own.facts, *host == Key::host(0), &config.library)?;
        compose::preparation(&config.spec, &own.facts, &tag, peers, &images.pulls, &config.library)
    }

    /// The stage that opens a host to the others, which all are in this survey.
    pub(super) fn guard_stage(&self, host: &Key, survey: &Survey, nodes: &[NodeSpec]) -> Result<Stage> {
        let own = survey.get(host).ok_or_else(|| no_place(host))?;
        let config = &self.config;
        let tag = config.scope.tag(host).to_string();
        let (addresses, ports) = self.lets_in(host, own, survey, nodes);
        compose::guard_steps(&config.spec, &own.facts, &tag, &addresses, &ports, &config.library)
    }

    /// Who may come to which ports of a host.
    fn lets_in(&self, host: &Key, own: &Surveyed, survey: &Survey, nodes: &[NodeSpec]) -> (Vec<String>, Vec<String>) {
        let peers = survey.iter().filter(|(key, _)| *key != host).map(|(_, peer)| peer.address.clone()).collect();
        let is_head = *host == Key::host(0);
        let here: Vec<NodeSpec> = nodes.iter().filter(|node| node.host == *host).cloned().collect();
        let ports: Vec<String> = compose::peer_ports(own.ports, &here, is_head, self.host_keys().len())
            .into_iter()
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
            .collect();
        (peers, ports)
    }

    /// One deployment for each host of the survey.
    pub(super) fn deployments(&self, nodes: &[NodeSpec], survey: &Survey, pages: &Pages) -> Result<Vec<Deployment>> {
        self.with_request(nodes, survey, pages, compose::deployments)
    }

    /// The deployment of one host; the others may be on their way still.
    pub(super) fn deployment(&self, host: &Key, survey: &Survey, pages: &Pages) -> Result<Deployment> {
        let nodes = self.nodes(survey)?;
        self.with_request(&nodes, survey, pages, |request| compose::deployment_of(request, host))
    }

    fn with_request<T>(
        &self,
        nodes: &[NodeSpec],
        survey: &Survey,
        pages: &Pages,
        render: impl FnOnce(&DeployRequest<'_>) -> Result<T>,
    ) -> Result<T> {
        let hosts: Vec<HostInput> = survey
            .iter()
            .map(|(key, host)| HostInput {
                key: key.clone(),
                tag: self.config.scope.tag(key).to_string(),
                facts: host.facts.clone(),
                address: host.address.clone(),
                ports: host.ports,
            })
            .collect();
        render(&DeployRequest {
            spec: &self.config.spec,
            scope: &self.config.scope,
            nodes,
            hosts: &hosts,
            pages,
            secrets: &self.config.secrets,
            library: &self.config.library,
        })
    }

    /// What the hosts hold when all is as it was last brought up; nothing where something is not remembered.
    pub(super) fn remembered(&self, known: &ClusterState) -> BTreeMap<Key, Expected> {
        let recall = || -> Option<BTreeMap<Key, Expected>> {
            let survey = self.recalled(known)?;
            let pages: Pages = known.note(&Key::project(0), "pages")?;
            let nodes = self.nodes_on(&survey).ok()??;
            let mut remembered = BTreeMap::new();
            for deployment in self.deployments(&nodes, &survey, &pages).ok()? {
                let host = deployment.host.clone();
                let prepare = self.prepare_stage(&host, &survey, &nodes).ok()?;
                let guard = match self.guards() {
                    true => Some(self.guard_stage(&host, &survey, &nodes).ok()?),
                    false => None,
                };
                remembered.insert(host, Expected { prepare, guard, deployment });
            }
            Some(remembered)
        };
        recall().unwrap_or_default()
    }
}

/// What a plan needs to know of a host of these facts.
pub(super) fn machine_of(facts: &Facts) -> Machine {
    let gpus = u32::try_from(facts.gpus.len()).unwrap_or_default();
    Machine { cpus: facts.cpus, memory: facts.memory, gpus }
}

/// The address that the other hosts of the cluster reach a host by.
pub(super) fn address_of(place: &HostPlace, facts: &Facts) -> String {
    let HostPlace::Ssh { target } = place else { return "127.0.0.1".to_owned() };
    if let Some(address) = &target.private_address {
        return address.clone();
    }
    if target.node.parse().is_ok_and(|node| facts.addresses.contains(&node)) {
        return target.node.clone();
    }
    facts.addresses.first().map_or_else(|| target.node.clone(), ToString::to_string)
}

/// The ports of a host that are in use by others.
pub(super) fn taken(facts: &Facts) -> BTreeSet<u16> {
    facts.listening.iter().map(std::net::SocketAddr::port).collect()
}
