//! What each host of a cluster should hold, from its spec and the facts of its hosts.
//!
//! Pure. The goal's digests, the comparison with what an inspection finds, the stages that run and the files that
//! `render` shows are all taken from here.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};
use crate::name::{Key, Scope};
use crate::plan::{Machine, desired};
use crate::playbook::Stage;
use crate::provider::Offer;
use crate::render::Library;
use crate::runtime;
use crate::runtime::project::{
    Bundle, DeployRequest, Deployment, Filling, HostInput, Others, PrepareRequest, ProjectRuntime,
};
use crate::secret::Secrets;
use crate::spec::{NodeSpec, Spec};
use crate::state::{HostPorts, Pages};

/// A demand that the hosts cannot meet: the path in the spec and the reason.
pub(in crate::cluster) type Impossible = (String, String);

/// When the hosts of a cluster learn each other's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cluster) enum Addresses {
    /// When they are prepared: the hosts exist already.
    BeforePreparation,
    /// Once all of them are created: a stage of its own then opens their ports to each other.
    OnceCreated,
}

/// A cluster on hosts.
pub(in crate::cluster) struct Layout<'a> {
    /// The owner and the cluster.
    pub(in crate::cluster) scope: &'a Scope,
    /// The cluster's spec.
    pub(in crate::cluster) spec: &'a Spec,
    /// Playbooks and templates.
    pub(in crate::cluster) library: &'a Library,
    /// The cluster's credentials, or why they cannot be read.
    pub(in crate::cluster) secrets: Result<&'a Secrets>,
    /// The files of the user's machine that hosts should have; `None` where their data folders are left alone.
    pub(in crate::cluster) files: Option<Vec<Bundle>>,
    /// When hosts learn each other's addresses.
    pub(in crate::cluster) addresses: Addresses,
    /// The hosts whose facts are known, in the order of the spec.
    pub(in crate::cluster) hosts: Vec<HostInput>,
}

/// What one host should hold, as it was last brought up.
pub(super) struct HostContent {
    prepare: Stage,
    firewall: Option<Stage>,
    fill: Option<Stage>,
    /// What it runs; `None` if nothing was deployed yet.
    pub(super) deployment: Option<Deployment>,
}

impl HostContent {
    /// All stages, in order.
    pub(super) fn stages(&self) -> Vec<&Stage> {
        let deploy = self.deployment.as_ref().map(|deployment| &deployment.stage);
        [Some(&self.prepare), self.firewall.as_ref(), self.fill.as_ref(), deploy].into_iter().flatten().collect()
    }
}

impl Layout<'_> {
    pub(super) fn runtime(&self) -> &'static dyn ProjectRuntime {
        runtime::of(self.spec.runtime)
    }

    /// A host of the layout.
    ///
    /// # Errors
    /// If its facts are not known.
    pub(super) fn host(&self, host: &Key) -> Result<&HostInput> {
        self.hosts.iter().find(|input| input.key == *host).ok_or_else(|| no_place(host))
    }

    /// Whether the facts of this host are known.
    pub(super) fn has(&self, host: &Key) -> bool {
        self.hosts.iter().any(|input| input.key == *host)
    }

    /// Whether the facts of all hosts are known.
    pub(super) fn is_complete(&self) -> bool {
        keys(self.spec).iter().all(|host| self.has(host))
    }

    /// The known hosts as machines.
    pub(super) fn machines(&self) -> Vec<(Key, Machine)> {
        self.hosts.iter().map(|host| (host.key.clone(), Machine::of(&host.facts, self.spec.runtime))).collect()
    }

    /// The nodes of the spec on these hosts; `None` while a host has no facts.
    pub(super) fn nodes_if_complete(&self) -> Result<Option<Vec<NodeSpec>>, Impossible> {
        if !self.is_complete() {
            return Ok(None);
        }
        desired(self.spec, &self.machines()).map(Some)
    }

    /// The nodes of the spec on these hosts; none while a host has no facts.
    ///
    /// # Errors
    /// If the hosts cannot meet what the spec asks for.
    pub(super) fn nodes(&self) -> Result<Vec<NodeSpec>> {
        let nodes = self.nodes_if_complete().map_err(|(path, sentence)| {
            Error::new(ErrorKind::Spec, format!("lay out the nodes ({path})")).because(sentence)
        })?;
        Ok(nodes.unwrap_or_default())
    }

    /// The nodes, with offers in place of hosts that do not exist yet.
    pub(in crate::cluster) fn nodes_with(&self, offers: &[Offer]) -> Result<Vec<NodeSpec>, Impossible> {
        let machine = |(index, key): (usize, Key)| {
            let known = self.hosts.iter().find(|host| host.key == key);
            let machine = match (known, offers.get(index).or(offers.first())) {
                (Some(host), _) => Machine::of(&host.facts, self.spec.runtime),
                (None, Some(offer)) => Machine {
                    cpus: offer.cpus,
                    memory: offer.memory,
                    // Without a count in the offer, assume as many as the spec needs.
                    gpus: offer.gpus.iter().map(|gpu| gpu.count.unwrap_or_else(|| self.gpus_needed(index))).sum(),
                    ..Machine::default()
                },
                (None, None) => Machine::default(),
            };
            (key, machine)
        };
        let machines: Vec<(Key, Machine)> = keys(self.spec).into_iter().enumerate().map(machine).collect();
        desired(self.spec, &machines)
    }

    /// How many GPUs the workers need on one host according to the spec; at least one.
    fn gpus_needed(&self, host: usize) -> u32 {
        let here = self.spec.ray.workers.groups().iter().filter(|group| self.spec.runs_on(group, host));
        here.map(|group| group.gpus.unwrap_or(1) * group.count.unwrap_or(1)).sum::<u32>().max(1)
    }

    /// Whether hosts open their ports to each other in a stage of its own.
    pub(super) fn has_firewall_stage(&self) -> bool {
        self.runtime().opens_ports() && self.spec.hosts.len() > 1 && self.addresses == Addresses::OnceCreated
    }

    /// What is known about a host's peers when it is prepared.
    fn peers(&self) -> Others {
        if self.spec.hosts.len() < 2 {
            Others::None
        } else if self.has_firewall_stage() {
            Others::Later
        } else {
            Others::Known
        }
    }

    /// The stage that prepares a host.
    pub(in crate::cluster) fn preparation(&self, host: &Key, nodes: &[NodeSpec]) -> Result<Stage> {
        self.runtime().preparation(&self.prepare_request(host, nodes, self.peers())?)
    }

    /// The stage that opens a host's ports to the others, whose facts must all be known.
    pub(super) fn firewall(&self, host: &Key, nodes: &[NodeSpec]) -> Result<Stage> {
        self.runtime().firewall(&self.prepare_request(host, nodes, Others::Known)?)
    }

    /// How the data folder of a host is filled; `None` if the spec has nothing for it.
    pub(super) fn filling(&self, host: &Key, nodes: &[NodeSpec]) -> Result<Option<Filling>> {
        match self.files {
            Some(_) => self.runtime().filling(&self.prepare_request(host, nodes, self.peers())?),
            None => Ok(None),
        }
    }

    fn prepare_request<'b>(&'b self, host: &Key, nodes: &'b [NodeSpec], others: Others) -> Result<PrepareRequest<'b>> {
        let (spec, library, hosts) = (self.spec, self.library, &self.hosts);
        let files = self.files.as_deref().unwrap_or_default();
        Ok(PrepareRequest { spec, nodes, hosts, others, host: self.host(host)?, library, files })
    }

    /// One deployment for each known host.
    pub(in crate::cluster) fn deployments(&self, nodes: &[NodeSpec], pages: &Pages) -> Result<Vec<Deployment>> {
        self.runtime().deployments(&self.deploy_request(nodes, pages)?)
    }

    /// The deployment of one host; the others may still be starting.
    pub(super) fn deployment(&self, host: &Key, pages: &Pages) -> Result<Deployment> {
        self.runtime().deployment(&self.deploy_request(&self.nodes()?, pages)?, host)
    }

    fn deploy_request<'b>(&'b self, nodes: &'b [NodeSpec], pages: &'b Pages) -> Result<DeployRequest<'b>> {
        let (spec, scope, library, hosts) = (self.spec, self.scope, self.library, &self.hosts);
        Ok(DeployRequest { spec, scope, nodes, hosts, pages, secrets: self.secrets.clone()?, library })
    }

    /// The script that claims ports for the nodes of a host; `None` where there is nothing to claim.
    pub(super) fn claim_script(&self, host: &Key, pages: &Pages) -> Result<Option<String>> {
        Ok(self.runtime().claim_script(&self.deploy_request(&self.nodes()?, pages)?, self.host(host)?))
    }

    /// The ports that this script claimed, from its output.
    pub(super) fn claimed(&self, host: &Key, pages: &Pages, lines: &[String]) -> Result<HostPorts> {
        self.runtime().claimed(&self.deploy_request(&self.nodes()?, pages)?, self.host(host)?, lines)
    }

    /// What all hosts should hold; `None` while that is not known of one of them. Without `pages` nothing was deployed.
    pub(super) fn content(&self, pages: Option<&Pages>) -> Option<BTreeMap<Key, HostContent>> {
        let nodes = self.nodes_if_complete().ok()??;
        let deployments = pages.and_then(|pages| self.deployments(&nodes, pages).ok()).unwrap_or_default();
        let content = |host: &HostInput| {
            let host = host.key.clone();
            let prepare = self.preparation(&host, &nodes).ok()?;
            let firewall = match self.has_firewall_stage() {
                true => Some(self.firewall(&host, &nodes).ok()?),
                false => None,
            };
            let fill = self.filling(&host, &nodes).ok()?.map(|filling| filling.stage);
            let deployment = deployments.iter().find(|deployment| deployment.host == host).cloned();
            Some((host, HostContent { prepare, firewall, fill, deployment }))
        };
        self.hosts.iter().map(content).collect()
    }
}

/// The keys of a spec's hosts, in its order.
pub(super) fn keys(spec: &Spec) -> Vec<Key> {
    (0..spec.hosts.len()).map(Key::host).collect()
}

/// The number of a host, from its key.
pub(super) fn number(host: &Key) -> usize {
    host.as_str().trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or_default()
}

/// The key of a host's project.
pub(super) fn project_of(host: &Key) -> Key {
    Key::project(number(host))
}

/// The error for a host whose place is unknown.
pub(super) fn no_place(host: &Key) -> Error {
    Error::new(ErrorKind::Host, format!("reach {}", host.display_name()))
        .because("its provider does not say where it is")
}
