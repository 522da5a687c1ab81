//! The goal of `up`, computed from the spec and the inspected hosts.

use super::expected::{Impossible, Survey, project_of};
use super::world::ProjectWorld;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::plan::{
    DataGoal, Desired, FirewallGoal, Goal, Machine, NodeRequest, Observed, Preparation, ProjectRequest, desired,
};
use crate::provider::Offer;
use crate::runtime::project::Deployment;
use crate::spec::{Loaded, NodeSpec, SetupSpec};
use crate::state::ClusterState;

impl ProjectWorld {
    /// Everything the spec asks for. A host that does not exist yet counts as its provider offers it.
    pub(super) fn goal(
        &self,
        loaded: &Loaded,
        offers: &[Offer],
        known: &ClusterState,
        observed: &Observed,
    ) -> Result<Goal> {
        let wrong = |(path, sentence): Impossible| loaded.places.error(&path, sentence);
        let resources = self.requests()?;
        let survey = self.survey(known);
        let nodes = match self.nodes_on(&survey).map_err(wrong)? {
            Some(nodes) => nodes,
            None => self.nodes_offered(offers, &survey).map_err(wrong)?,
        };
        let mut preparations = Vec::new();
        for host in self.host_keys() {
            let digest = match survey.contains_key(&host) {
                true => self.prepare_stage(&host, &survey, &nodes)?.digest(),
                false => String::new(),
            };
            let through = self.config.provider.capability().behind_first.then(|| Key::host(0));
            let behind = through.filter(|first| *first != host);
            let setup = self.config.spec.setup().map(SetupSpec::digest);
            preparations.push(Preparation { host, digest, setup, behind });
        }
        let mut firewalls = Vec::new();
        for host in self.host_keys().into_iter().filter(|_| self.has_firewall()) {
            let digest = match survey.len() == self.host_keys().len() {
                true => self.firewall_stage(&host, &survey, &nodes)?.digest(),
                false => String::new(),
            };
            firewalls.push(FirewallGoal { host, digest });
        }
        let mut data = Vec::new();
        for host in self.host_keys().into_iter().filter(|_| self.config.spec.has_data()) {
            let filling = match survey.contains_key(&host) {
                true => self.filling(&host, &survey, &nodes)?,
                false => None,
            };
            data.push(DataGoal { host, digest: filling.map(|filling| filling.stage.digest()).unwrap_or_default() });
        }
        let apart = !self.runtime().opens_ports();
        let deployments = self.observed_deployments(known, observed, &nodes, &preparations, &survey)?;
        let project = |host: Key| {
            let deployment = deployments.iter().find(|deployment| deployment.host == host);
            let of_node = |key: &Key| deployment.and_then(|deployment| deployment.digests.get(key).cloned());
            let here = nodes.iter().filter(|node| node.host == host);
            ProjectRequest {
                key: project_of(&host),
                digest: deployment.map(|deployment| deployment.stage.digest()),
                nodes: here.map(|node| NodeRequest { key: node.key.clone(), digest: of_node(&node.key) }).collect(),
                host,
            }
        };
        let projects = self.host_keys().into_iter().map(project).collect();
        Ok(Goal::Up(Desired { resources, preparations, firewalls, data, apart, projects }))
    }

    /// The deployments, if every host is prepared: only then do the drivers report all GPUs.
    fn observed_deployments(
        &self,
        known: &ClusterState,
        observed: &Observed,
        nodes: &[NodeSpec],
        preparations: &[Preparation],
        survey: &Survey,
    ) -> Result<Vec<Deployment>> {
        let prepared = preparations
            .iter()
            .all(|preparation| observed.prepared.get(&preparation.host) == Some(&preparation.digest));
        let pages = known.pages();
        match pages.filter(|_| prepared) {
            Some(pages) => self.deployments(nodes, survey, pages),
            None => Ok(Vec::new()),
        }
    }

    /// How many GPUs the workers need on one host according to the spec; at least one.
    fn gpus_asked(&self, host: usize) -> u32 {
        let spec = &self.config.spec;
        let here = spec.ray.workers.groups().iter().filter(|group| spec.runs_on(group, host));
        here.map(|group| group.gpus.unwrap_or(1) * group.count.unwrap_or(1)).sum::<u32>().max(1)
    }

    /// The nodes, with offers in place of hosts that do not exist yet.
    fn nodes_offered(&self, offers: &[Offer], survey: &Survey) -> Result<Vec<NodeSpec>, Impossible> {
        let machines: Vec<(Key, Machine)> = self
            .host_keys()
            .into_iter()
            .enumerate()
            .map(|(index, key)| {
                let machine = match (survey.get(&key), offers.get(index).or(offers.first())) {
                    (Some(host), _) => Machine::of(&host.facts, self.config.spec.runtime),
                    (None, Some(offer)) => Machine {
                        cpus: offer.cpus,
                        memory: offer.memory,
                        // Without a count in the offer, assume as many as the spec needs.
                        gpus: offer.gpus.iter().map(|gpu| gpu.count.unwrap_or_else(|| self.gpus_asked(index))).sum(),
                        ..Machine::default()
                    },
                    (None, None) => Machine::default(),
                };
                (key, machine)
            })
            .collect();
        desired(&self.config.spec, &machines)
    }
}

/// The error for a host whose place is unknown.
pub(super) fn no_place(host: &Key) -> Error {
    Error::new(ErrorKind::Host, format!("reach {}", host.display_name()))
        .because("its provider does not say where it is")
}
