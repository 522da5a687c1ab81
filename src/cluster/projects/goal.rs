//! What `up` is to come to, once hosts were looked at.

use std::collections::BTreeMap;

use super::expected::{Impossible, address_of, project_of};
use super::world::ProjectWorld;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::plan::{Desired, Goal, Machine, NodeSpec, Observed, Preparation, ProjectRequest, desired};
use crate::playbook::Facts;
use crate::provider::{HostRequest, Offer};
use crate::runtime::compose::{HostPorts, Pages};
use crate::spec::Loaded;
use crate::state::ClusterState;

impl ProjectWorld {
    /// All that the spec asks for, on what was seen. Where a host is not there yet, what is offered is counted with.
    pub(super) fn goal(
        &self,
        loaded: &Loaded,
        offers: &[Offer],
        known: &ClusterState,
        observed: &Observed,
    ) -> Result<Goal> {
        let wrong = |(path, sentence): Impossible| loaded.places.error(&path, sentence);
        let mut resources = Vec::new();
        let mut facts: BTreeMap<Key, Facts> = BTreeMap::new();
        let mut addresses = BTreeMap::new();
        for (index, settings) in loaded.spec.hosts.iter().enumerate() {
            let request = HostRequest { key: Key::host(index), settings: settings.clone() };
            resources.extend(self.config.provider.expand(&self.config.scope, &request)?);
            let (Some(seen), Some(place)) = (self.seen_facts(&request.key), self.place_of(&request.key)) else {
                continue;
            };
            addresses.insert(request.key.clone(), address_of(&place, &seen));
            facts.insert(request.key, seen);
        }
        let nodes = match self.nodes_on(&facts).map_err(wrong)? {
            Some(nodes) => nodes,
            None => self.nodes_offered(offers, &facts).map_err(wrong)?,
        };
        let mut preparations = Vec::new();
        for host in self.host_keys() {
            let digest = match facts.get(&host) {
                Some(facts) => self.prepare_stage(&host, facts, &self.peers(&host, &addresses))?.digest(),
                None => String::new(),
            };
            preparations.push(Preparation { host, digest });
        }
        let digests = self.digests(known, observed, &nodes, &preparations, &facts, &addresses)?;
        let projects = self
            .host_keys()
            .into_iter()
            .map(|host| ProjectRequest { key: project_of(&host), digest: digests.get(&host).cloned(), host })
            .collect();
        Ok(Goal::Up(Desired { resources, preparations, agent: None, nodes: Vec::new(), projects }))
    }

    /// The digests of the projects, where they can be told: every host is prepared, and has told its ports.
    fn digests(
        &self,
        known: &ClusterState,
        observed: &Observed,
        nodes: &[NodeSpec],
        preparations: &[Preparation],
        facts: &BTreeMap<Key, Facts>,
        addresses: &BTreeMap<Key, String>,
    ) -> Result<BTreeMap<Key, String>> {
        let prepared = preparations
            .iter()
            .all(|preparation| observed.prepared.get(&preparation.host) == Some(&preparation.digest));
        let ports: BTreeMap<Key, HostPorts> = self
            .host_keys()
            .into_iter()
            .filter_map(|host| known.note(&project_of(&host), "ports").map(|ports| (host, ports)))
            .collect();
        let pages: Option<Pages> = known.note(&Key::project(0), "pages");
        let (true, Some(pages), true) = (prepared, pages, ports.len() == self.host_keys().len()) else {
            return Ok(BTreeMap::new());
        };
        let deployments = self.deployments(nodes, facts, addresses, &ports, &pages)?;
        Ok(deployments.into_iter().map(|deployment| (deployment.host.clone(), deployment.stage.digest())).collect())
    }

    /// The nodes on hosts that are only offered.
    fn nodes_offered(&self, offers: &[Offer], facts: &BTreeMap<Key, Facts>) -> Result<Vec<NodeSpec>, Impossible> {
        let machines: Vec<(Key, Machine)> = self
            .host_keys()
            .into_iter()
            .enumerate()
            .map(|(index, key)| {
                let machine = match (facts.get(&key), offers.get(index).or(offers.first())) {
                    (Some(facts), _) => Machine {
                        cpus: facts.cpus,
                        memory: facts.memory,
                        gpus: u32::try_from(facts.gpus.len()).unwrap_or_default(),
                    },
                    (None, Some(offer)) => Machine {
                        cpus: offer.cpus,
                        memory: offer.memory,
                        gpus: offer.gpus.iter().map(|gpu| gpu.count).sum(),
                    },
                    (None, None) => Machine::default(),
                };
                (key, machine)
            })
            .collect();
        desired(&self.config.spec, &machines)
    }
}

/// The error of a plan in which a host has no place.
pub(super) fn no_place(host: &Key) -> Error {
    Error::new(ErrorKind::Host, format!("reach {}", host.display_name())).because("its provider has no place for it")
}
