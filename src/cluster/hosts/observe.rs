//! What is observed of a cluster on hosts: its provider's resources, then one exec per host, concurrently.

use std::collections::BTreeSet;

use super::fleet::has_facts;
use super::layout::{HostContent, project_of};
use super::on_hosts::OnHosts;
use crate::cluster::substrate::Look;
use crate::error::{Error, Result};
use crate::name::Key;
use crate::plan::{Health, Observed, ObservedNode, ObservedProject, Remnant};
use crate::playbook::Inspection;
use crate::runtime::project::{Container, ContainerHealth, ContainerState, Observation};
use crate::state::{ClusterState, ItemKind};

impl OnHosts {
    /// Observes the provider, then inspects all hosts concurrently.
    pub(super) async fn observe_all(&self, known: &ClusterState) -> Result<Observed> {
        let mut observed = self.supply.observe().await?;
        if self.leaves_no_trace() {
            return Ok(observed);
        }
        let mut hosts = self.find_places(known, &observed).await;
        if self.supply.makes_hosts() {
            // A host without facts may still be booting: its preparation waits for it.
            hosts.retain(|host| has_facts(known, host));
        }
        let content = match self.fleet.look() {
            Look::Running => Default::default(),
            Look::Stages | Look::Checks { .. } => self.recorded_content(known),
        };
        let inspections = self.fleet.inspect_all(&hosts, &content, known).await;
        let by_hand = known.stopped_by_hand();
        let keeps_data = self.clean_options().keep_data;
        let mut unreachable: Option<Error> = None;
        for (host, inspection) in hosts.iter().zip(inspections) {
            match inspection {
                Ok((inspection, observation)) => {
                    if keeps_data && observation.remains.iter().any(Remnant::is_data) {
                        // What holds kept data stays with it: the next `up` adopts it, and a `down` removes it.
                        observed.resources.retain(|found| found.key != *host);
                    }
                    if let Some(stage) = inspection.stages.get("prepare").filter(|stage| stage.holds == Some(true)) {
                        observed.prepared.insert(host.clone(), stage.digest.clone());
                    }
                    if let Some(stage) = inspection.stages.get("firewall").filter(|stage| stage.holds == Some(true)) {
                        observed.firewalls.insert(host.clone(), stage.digest.clone());
                    }
                    if let Some(stage) = inspection.stages.get("fill") {
                        let digest = if stage.holds == Some(false) { "" } else { &stage.digest };
                        observed.filled.insert(host.clone(), digest.to_owned());
                    }
                    observed.projects.extend(self.project(
                        host,
                        &inspection,
                        &observation,
                        content.get(host),
                        &by_hand,
                    ));
                }
                // What was put there must be assumed to be there still.
                Err(error) if is_known(known, host) => observed.projects.push(ObservedProject {
                    key: project_of(host),
                    host: host.clone(),
                    id: self.fleet.tag(host),
                    digest: None,
                    health: Health::Broken(format!("it cannot be reached: {error}")),
                    running: false,
                    nodes: Vec::new(),
                    remains: vec![Remnant::OfUnreachableHost],
                }),
                Err(error) => unreachable = Some(unreachable.unwrap_or(error)),
            }
        }
        match unreachable {
            Some(error) => Err(error),
            None => Ok(observed),
        }
    }

    /// The observed project of a host, as the plan needs it; `None` if nothing of ours is there.
    fn project(
        &self,
        host: &Key,
        inspection: &Inspection,
        observation: &Observation,
        content: Option<&HostContent>,
        by_hand: &BTreeSet<Key>,
    ) -> Option<ObservedProject> {
        let mut remains = observation.remains.clone();
        if self.clean_options().keep_data {
            // What is kept on purpose is not left.
            remains.retain(|what| !what.is_data());
        }
        if remains.is_empty() && observation.containers.is_empty() {
            return None;
        }
        let deployment = content.and_then(|content| content.deployment.as_ref());
        let missing = deployment.into_iter().flat_map(|deployment| &deployment.nodes).find_map(|node| {
            let there = observation.containers.iter().any(|container| container.key == node.key);
            (!there).then(|| format!("{} is missing", node.key.display_name()))
        });
        let ill = observation.containers.iter().find_map(|container| {
            let name = container.key.display_name();
            if !container.is_running() && by_hand.contains(&container.key) {
                return Some(format!("{name} was stopped by hand"));
            }
            match (&container.state, &container.health) {
                (ContainerState::Running, Some(ContainerHealth::Unhealthy)) => Some(format!("{name} is unhealthy")),
                // As after a restart of its host or engine: a deployment waits for it to become healthy.
                (ContainerState::Running, Some(ContainerHealth::Starting)) => Some(format!("{name} is starting")),
                (ContainerState::Running, _) => None,
                (ContainerState::Exited, None) if container.exit_code == Some(0) => Some(format!("{name} has ended")),
                (state, _) => Some(format!("{name} is {state}")),
            }
        });
        let stage = inspection.stages.get("deploy");
        Some(ObservedProject {
            key: project_of(host),
            host: host.clone(),
            id: self.fleet.tag(host),
            digest: stage.map(|stage| stage.digest.clone()),
            health: match missing.or(ill) {
                Some(why) => Health::Broken(why),
                None => Health::Good,
            },
            running: observation.processes > 0 || observation.containers.iter().any(Container::is_running),
            nodes: observation.containers.iter().filter(|container| is_compared(&container.key)).map(node).collect(),
            remains,
        })
    }
}

/// Whether the plan says what becomes of it alone.
fn is_compared(key: &Key) -> bool {
    key.is_node() || key.is_guard()
}

/// A node as its host reports it.
fn node(container: &Container) -> ObservedNode {
    ObservedNode {
        key: container.key.clone(),
        running: container.is_running(),
        digest: container.digest.clone().filter(|digest| !digest.is_empty()),
    }
}

/// Whether something was put on a host, or may have been.
fn is_known(known: &ClusterState, host: &Key) -> bool {
    known.items.get(&project_of(host)).is_some_and(|item| item.kind == ItemKind::Project) || has_facts(known, host)
}
