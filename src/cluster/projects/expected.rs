//! What each host is to hold, worked out from a spec and from what hosts have told.

use std::collections::{BTreeMap, BTreeSet};

use super::world::ProjectWorld;
use crate::error::Result;
use crate::name::Key;
use crate::plan::{Machine, NodeSpec, desired};
use crate::playbook::{Facts, Stage};
use crate::provider::HostPlace;
use crate::runtime::compose::{self, DeployRequest, Deployment, HostInput, HostPorts, Pages};
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

impl ProjectWorld {
    /// The keys of the hosts that the spec asks for, in its order.
    pub(super) fn host_keys(&self) -> Vec<Key> {
        (0..self.config.spec.hosts.len()).map(Key::host).collect()
    }

    /// What is known of a host: what was seen now, else what it told when it was prepared.
    pub(super) fn facts_of(&self, known: &ClusterState, host: &Key) -> Option<Facts> {
        self.seen_facts(host).or_else(|| known.note(host, "facts"))
    }

    /// The nodes of the spec on hosts of these facts; `None` while a host has not told.
    pub(super) fn nodes_on(&self, facts: &BTreeMap<Key, Facts>) -> Result<Option<Vec<NodeSpec>>, Impossible> {
        let mut machines = Vec::new();
        for key in self.host_keys() {
            let Some(facts) = facts.get(&key) else { return Ok(None) };
            let gpus = u32::try_from(facts.gpus.len()).unwrap_or_default();
            machines.push((key, Machine { cpus: facts.cpus, memory: facts.memory, gpus }));
        }
        desired(&self.config.spec, &machines).map(Some)
    }

    /// The stage that prepares a host of these facts.
    pub(super) fn prepare_stage(&self, host: &Key, facts: &Facts, peers: &[String]) -> Result<Stage> {
        let tag = self.config.scope.tag(host).to_string();
        compose::preparation(&self.config.spec, facts, &tag, peers, &self.config.library)
    }

    /// The addresses of the other hosts.
    pub(super) fn peers(&self, host: &Key, addresses: &BTreeMap<Key, String>) -> Vec<String> {
        addresses.iter().filter(|(key, _)| *key != host).map(|(_, address)| address.clone()).collect()
    }

    /// One deployment for each host of which enough is known.
    pub(super) fn deployments(
        &self,
        nodes: &[NodeSpec],
        facts: &BTreeMap<Key, Facts>,
        addresses: &BTreeMap<Key, String>,
        ports: &BTreeMap<Key, HostPorts>,
        pages: &Pages,
    ) -> Result<Vec<Deployment>> {
        let mut hosts = Vec::new();
        for key in self.host_keys() {
            let (Some(facts), Some(address), Some(ports)) = (facts.get(&key), addresses.get(&key), ports.get(&key))
            else {
                continue;
            };
            hosts.push(HostInput {
                tag: self.config.scope.tag(&key).to_string(),
                facts: facts.clone(),
                address: address.clone(),
                ports: *ports,
                key,
            });
        }
        compose::deployments(&DeployRequest {
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
    pub(super) fn remembered(&self, known: &ClusterState) -> BTreeMap<Key, (Stage, Deployment)> {
        let recall = || -> Option<BTreeMap<Key, (Stage, Deployment)>> {
            let keys = self.host_keys();
            let facts: BTreeMap<Key, Facts> =
                keys.iter().map(|key| Some((key.clone(), known.note(key, "facts")?))).collect::<Option<_>>()?;
            let addresses: BTreeMap<Key, String> =
                keys.iter().map(|key| Some((key.clone(), known.note(key, "address")?))).collect::<Option<_>>()?;
            let ports: BTreeMap<Key, HostPorts> = keys
                .iter()
                .map(|key| Some((key.clone(), known.note(&project_of(key), "ports")?)))
                .collect::<Option<_>>()?;
            let pages: Pages = known.note(&Key::project(0), "pages")?;
            let nodes = self.nodes_on(&facts).ok()??;
            let deployments = self.deployments(&nodes, &facts, &addresses, &ports, &pages).ok()?;
            let mut remembered = BTreeMap::new();
            for deployment in deployments {
                let peers = self.peers(&deployment.host, &addresses);
                let stage = self.prepare_stage(&deployment.host, facts.get(&deployment.host)?, &peers).ok()?;
                remembered.insert(deployment.host.clone(), (stage, deployment));
            }
            Some(remembered)
        };
        recall().unwrap_or_default()
    }
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
