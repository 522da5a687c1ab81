//! What `up` is to come to, once hosts were looked at.

use std::collections::BTreeMap;

use super::expected::{Impossible, Survey, machine_of, project_of};
use super::world::ProjectWorld;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::plan::{Desired, Goal, Guarding, Machine, NodeSpec, Observed, Preparation, ProjectRequest, desired};
use crate::provider::Offer;
use crate::runtime::project::Pages;
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
            preparations.push(Preparation { host, digest, behind });
        }
        let mut guards = Vec::new();
        for host in self.host_keys().into_iter().filter(|_| self.guards()) {
            let digest = match survey.len() == self.host_keys().len() {
                true => self.guard_stage(&host, &survey, &nodes)?.digest(),
                false => String::new(),
            };
            guards.push(Guarding { host, digest });
        }
        let apart = !self.runtime().opens_ports();
        let digests = self.digests(known, observed, &nodes, &preparations, &survey)?;
        let projects = self
            .host_keys()
            .into_iter()
            .map(|host| ProjectRequest { key: project_of(&host), digest: digests.get(&host).cloned(), host })
            .collect();
        Ok(Goal::Up(Desired { resources, preparations, guards, apart, projects, ..Desired::default() }))
    }

    /// The digests of the projects, where they can be told: every host is prepared, so that its driver tells its GPUs.
    fn digests(
        &self,
        known: &ClusterState,
        observed: &Observed,
        nodes: &[NodeSpec],
        preparations: &[Preparation],
        survey: &Survey,
    ) -> Result<BTreeMap<Key, String>> {
        let prepared = preparations
            .iter()
            .all(|preparation| observed.prepared.get(&preparation.host) == Some(&preparation.digest));
        let (true, Some(pages)) = (prepared, known.note::<Pages>(&Key::project(0), "pages")) else {
            return Ok(BTreeMap::new());
        };
        let deployments = self.deployments(nodes, survey, &pages)?;
        Ok(deployments.into_iter().map(|deployment| (deployment.host.clone(), deployment.stage.digest())).collect())
    }

    /// How many GPUs the workers take of one host, as far as the spec says; one at least.
    fn gpus_asked(&self) -> u32 {
        let workers = &self.config.spec.ray.workers;
        (workers.gpus.unwrap_or(1) * workers.count.unwrap_or(1)).max(1)
    }

    /// The nodes on hosts that are only offered.
    fn nodes_offered(&self, offers: &[Offer], survey: &Survey) -> Result<Vec<NodeSpec>, Impossible> {
        let machines: Vec<(Key, Machine)> = self
            .host_keys()
            .into_iter()
            .enumerate()
            .map(|(index, key)| {
                let machine = match (survey.get(&key), offers.get(index).or(offers.first())) {
                    (Some(host), _) => machine_of(&host.facts),
                    (None, Some(offer)) => Machine {
                        cpus: offer.cpus,
                        memory: offer.memory,
                        // Where nobody tells how many, what is asked for is taken as there until the host has told.
                        gpus: offer.gpus.iter().map(|gpu| gpu.count.unwrap_or_else(|| self.gpus_asked())).sum(),
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
