//! Observation of hosts: one exec per host reports its facts, what of ours is on it, and its check results.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;

use super::expected::{Expected, project_of};
use super::world::{HostObservation, ProjectWorld, Purpose};
use crate::error::{Error, Result};
use crate::name::Key;
use crate::plan::{Health, Observed, ObservedNode, ObservedProject, Remnant};
use crate::playbook::{self, Inspection, Stage};
use crate::render::{quote, quote_path};
use crate::runtime::project::{self, Container, ContainerHealth, ContainerState, Observation};
use crate::state::{ClusterState, ItemKind};

/// How long `up` shows the result of a check that is slow again, while nothing was restarted; `verify` never does.
const RECENT: Duration = Duration::from_secs(600);

impl ProjectWorld {
    /// Observes the provider, then inspects all hosts concurrently.
    pub(super) async fn observe_all(&self, known: &ClusterState) -> Result<Observed> {
        let mut observed = self.observe_resources().await?;
        if self.leaves_no_trace() {
            return Ok(observed);
        }
        let mut hosts = self.find_places(known, &observed).await?;
        if self.config.provider.capability().hosts_vanish {
            // A host without facts may still be booting: its preparation waits for it.
            hosts.retain(|host| has_facts(known, host));
        }
        self.observations().stopped_by_hand = known.stopped_by_hand();
        let remembered = match self.config.purpose {
            Purpose::Glance => BTreeMap::new(),
            _ => self.remembered(known),
        };
        let inspections = join_all(hosts.iter().map(|host| self.inspect(host, remembered.get(host)))).await;
        let mut unreachable: Option<Error> = None;
        for (host, inspection) in hosts.iter().zip(inspections) {
            let expected = remembered.get(host);
            match inspection {
                Ok((inspection, observation)) => {
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
                    let by_hand = known.stopped_by_hand();
                    observed.projects.extend(self.project(host, &inspection, &observation, expected, &by_hand));
                }
                // What was put there must be assumed to be there still.
                Err(error) if is_known(known, host) => observed.projects.push(ObservedProject {
                    key: project_of(host),
                    host: host.clone(),
                    id: self.config.scope.tag(host).to_string(),
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

    /// Inspects a host by one exec: its facts, what of ours is on it, and check results if it still has the expected
    /// deployment.
    pub(super) async fn inspect(&self, host: &Key, expected: Option<&Expected>) -> Result<(Inspection, Observation)> {
        let connected = self.connected(host).await?;
        let tag = self.config.scope.tag(host).to_string();
        let mut script = self.runtime().inspect_script(&tag, &self.folders(host));
        let deployment = expected.and_then(|expected| expected.deployment.as_ref());
        let recent = match self.config.purpose {
            Purpose::Check => Some(RECENT),
            Purpose::Verify => Some(Duration::ZERO),
            _ => None,
        };
        if let (Some(recent), Some(deployment)) = (recent, deployment) {
            let stopped = self.observations().stopped_by_hand.clone();
            let names: Vec<String> = stopped.iter().map(Key::display_name).collect();
            let keys: Vec<&str> = stopped.iter().map(Key::as_str).collect();
            script.push_str(&format!("\nstopped={}\nstopped_keys={}", quote(&names.join(" ")), quote(&keys.join(" "))));
            script.push_str(&format!(
                "\nrecent={}\nif grep -q -x '#digest {}' {} 2>/dev/null; then\n{}\nfi\n",
                recent.as_secs(),
                deployment.stage.digest(),
                quote_path(&format!("{}/prepared/{}", self.home(host), deployment.stage.name)),
                deployment.checks
            ));
        }
        let stages: Vec<&Stage> = expected.map(Expected::stages).unwrap_or_default();
        let inspection = match self.config.purpose {
            Purpose::Glance => playbook::glance(connected.as_ref(), &script).await?,
            _ => playbook::inspect(connected.as_ref(), &stages, &script).await?,
        };
        let observation = project::parse_observation(&inspection.lines);
        let checks = project::checks_of(&inspection.lines);
        self.observations().by_host.insert(
            host.clone(),
            HostObservation { facts: inspection.facts.clone(), checks, containers: observation.containers.clone() },
        );
        Ok((inspection, observation))
    }

    /// The observed project of a host, as the plan needs it; `None` if nothing of ours is there.
    fn project(
        &self,
        host: &Key,
        inspection: &Inspection,
        observation: &Observation,
        expected: Option<&Expected>,
        by_hand: &BTreeSet<Key>,
    ) -> Option<ObservedProject> {
        let mut remains = observation.remains.clone();
        if matches!(self.config.purpose, Purpose::Remove(clean) if clean.keep_data) {
            // What is kept on purpose is not left.
            remains.retain(|what| !what.is_data());
        }
        if remains.is_empty() && observation.containers.is_empty() {
            return None;
        }
        let deployment = expected.and_then(|expected| expected.deployment.as_ref());
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
            id: self.config.scope.tag(host).to_string(),
            digest: stage.map(|stage| stage.digest.clone()),
            health: match missing.or(ill) {
                Some(why) => Health::Broken(why),
                None => Health::Good,
            },
            running: observation.processes > 0 || observation.containers.iter().any(Container::is_running),
            nodes: observation.containers.iter().filter(|container| container.key.is_node()).map(node).collect(),
            remains,
        })
    }
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

/// Whether the current host of this key has recorded facts; those of a predecessor are discarded.
pub(super) fn has_facts(known: &ClusterState, host: &Key) -> bool {
    known.host(host).is_some_and(|host| host.facts.is_some())
}
