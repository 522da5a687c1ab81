//! The goal of `up`: the digests of what the spec asks for, on the hosts as they were found. Pure.

use std::collections::BTreeMap;

use super::layout::{Impossible, Layout, keys, project_of};
use crate::error::{Error, Result};
use crate::name::Key;
use crate::plan::{DataGoal, Desired, FirewallGoal, NodeRequest, Preparation, ProjectRequest};
use crate::provider::{Offer, ResourceRequest};
use crate::runtime::project::{Deployment, guards};
use crate::spec::NodeSpec;
use crate::state::Pages;

/// What the goal is computed from, beside the layout.
pub(super) struct Given<'a> {
    /// The resources to have, in order.
    pub(super) resources: Vec<ResourceRequest>,
    /// What the provider offers in place of hosts that do not exist yet.
    pub(super) offers: &'a [Offer],
    /// All hosts but the first are reached through it.
    pub(super) behind_first: bool,
    /// The digests of the preparations that hold.
    pub(super) prepared: &'a BTreeMap<Key, String>,
    /// The ports of the pages, once something was deployed.
    pub(super) pages: Option<&'a Pages>,
}

/// Everything the spec asks for. A host that does not exist yet counts as its provider offers it.
///
/// # Errors
/// If the hosts cannot meet a demand of the spec, as `wrong` says it; if something cannot be rendered.
pub(super) fn desired(layout: &Layout<'_>, given: Given<'_>, wrong: impl Fn(Impossible) -> Error) -> Result<Desired> {
    let (spec, hosts) = (layout.spec, keys(layout.spec));
    let nodes = match layout.nodes_if_complete().map_err(&wrong)? {
        Some(nodes) => nodes,
        None => layout.nodes_with(given.offers).map_err(&wrong)?,
    };
    let mut desired = Desired { resources: given.resources, ..Desired::default() };
    desired.independent_hosts = !layout.runtime().opens_ports();
    for host in &hosts {
        let digest = match layout.has(host) {
            true => layout.preparation(host, &nodes)?.digest(),
            false => String::new(),
        };
        let behind = given.behind_first.then(|| Key::host(0)).filter(|first| first != host);
        let setup = spec.setup().map(|setup| setup.digest());
        desired.preparations.push(Preparation { host: host.clone(), digest, setup, behind });
    }
    for host in hosts.iter().filter(|_| layout.has_firewall_stage()) {
        let digest = match layout.is_complete() {
            true => layout.firewall(host, &nodes)?.digest(),
            false => String::new(),
        };
        desired.firewalls.push(FirewallGoal { host: host.clone(), digest });
    }
    for host in hosts.iter().filter(|_| spec.has_data()) {
        let filling = match layout.has(host) {
            true => layout.filling(host, &nodes)?,
            false => None,
        };
        let digest = filling.map(|filling| filling.stage.digest()).unwrap_or_default();
        desired.data.push(DataGoal { host: host.clone(), digest });
    }
    // Only once every host is prepared do the drivers report all GPUs.
    let is_prepared = |wanted: &Preparation| given.prepared.get(&wanted.host) == Some(&wanted.digest);
    let deployments = match given.pages.filter(|_| desired.preparations.iter().all(is_prepared)) {
        Some(pages) => layout.deployments(&nodes, pages)?,
        None => Vec::new(),
    };
    let guards = guards(spec, &hosts);
    desired.projects = hosts.into_iter().map(|host| project(host, &nodes, &guards, &deployments)).collect();
    Ok(desired)
}

fn project(host: Key, nodes: &[NodeSpec], guards: &[(Key, Key)], deployments: &[Deployment]) -> ProjectRequest {
    let deployment = deployments.iter().find(|deployment| deployment.host == host);
    let of_node = |key: &Key| deployment.and_then(|deployment| deployment.digests.get(key).cloned());
    let here = nodes.iter().filter(|node| node.host == host).map(|node| &node.key);
    let here = here.chain(guards.iter().filter(|(at, _)| *at == host).map(|(_, guard)| guard));
    ProjectRequest {
        key: project_of(&host),
        digest: deployment.map(|deployment| deployment.stage.digest()),
        nodes: here.map(|key| NodeRequest { key: key.clone(), digest: of_node(key) }).collect(),
        host,
    }
}
