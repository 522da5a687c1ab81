//! What `up` touches on each host: said by playbooks, and read from the projects.

use std::collections::BTreeSet;

use serde_yaml::Value;

use super::expected::{Surveyed, project_of};
use super::world::ProjectWorld;
use crate::cluster::HostTouches;
use crate::error::Result;
use crate::name::Key;
use crate::plan::{Action, Plan};
use crate::playbook::Stage;
use crate::runtime::project::Deployment;
use crate::state::ClusterState;

impl ProjectWorld {
    /// What this plan touches on the hosts that have told what they are.
    pub(super) fn touches(&self, known: &ClusterState, plan: &Plan) -> Result<Vec<HostTouches>> {
        let mut survey = self.survey(known);
        // The names of containers are known before drivers tell the ids of GPUs.
        survey.values_mut().for_each(name_gpus);
        let pages = known.pages().cloned().unwrap_or_default();
        let Ok(Some(nodes)) = self.nodes_on(&survey) else { return Ok(Vec::new()) };
        let deployments = self.deployments(&nodes, &survey, &pages)?;
        let mut all = Vec::new();
        // On this machine nothing but the user's own folders is touched.
        let elsewhere = survey.keys().filter(|host| self.folders(host).claim.is_empty());
        for host in elsewhere {
            let does = |action: &dyn Fn(&Action) -> bool, key: &Key| {
                plan.operations.iter().any(|operation| operation.key == *key && action(&operation.action))
            };
            let prepares = does(&|action| matches!(action, Action::Prepare { .. }), host);
            let guards = does(&|action| matches!(action, Action::Guard { .. }), host);
            let deploys = does(&|action| matches!(action, Action::Deploy { .. }), &project_of(host));
            let mut touches = Vec::new();
            if prepares || guards || deploys {
                touches.push(format!("folder {}", self.home(host)));
            }
            if prepares {
                touches.push(format!("folder {}", self.runtime().folders()));
                said_by(&self.prepare_stage(host, &survey, &nodes)?, &mut touches);
            }
            if guards {
                let stage = self.guard_stage(host, &survey, &nodes)?;
                touches.extend(stage.steps.iter().flat_map(|step| step.touches.iter().cloned()));
            }
            let of_host = deployments.iter().find(|deployment| deployment.host == *host);
            if let (true, Some(deployment)) = (deploys, of_host) {
                said_by(&deployment.stage, &mut touches);
                read_from(deployment, &mut touches);
            }
            if !touches.is_empty() {
                all.push(HostTouches { host: host.display_name(), touches: each_once(touches) });
            }
        }
        Ok(all)
    }
}

/// Stands in for the ids that a host without its driver cannot tell.
fn name_gpus(host: &mut Surveyed) {
    for gpu in &mut host.facts.gpus {
        gpu.uuid.get_or_insert_with(|| "GPU-not-known-yet".to_owned());
        gpu.render.get_or_insert_with(|| "not-known-yet".to_owned());
    }
}

fn said_by(stage: &Stage, touches: &mut Vec<String>) {
    touches.extend(stage.steps.iter().flat_map(|step| step.touches.iter().cloned()));
}

/// What compose makes of a host's files.
fn read_from(deployment: &Deployment, touches: &mut Vec<String>) {
    for file in &deployment.stage.files {
        if !file.path.starts_with("compose/") {
            continue;
        }
        let Ok(text) = std::str::from_utf8(&file.bytes) else { continue };
        // Only the files of projects have services; what else lies there is of services.
        let Ok(Value::Mapping(project)) = serde_yaml::from_str::<Value>(text) else { continue };
        of_project(&deployment.project, &project, touches);
    }
    let built = deployment.stage.steps.iter().filter(|step| step.name.starts_with("build the image "));
    touches.extend(
        built.filter_map(|step| step.variables.get("image")).map(|image| format!("image {image}, built there")),
    );
}

fn of_project(name: &str, project: &serde_yaml::Mapping, touches: &mut Vec<String>) {
    let part = |key: &str| project.get(key).and_then(Value::as_mapping);
    let Some(services) = part("services") else { return };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    for (service, of_it) in services {
        let Some(service) = text(service) else { continue };
        let own = of_it.get("container_name").and_then(text);
        touches.push(format!("container {}", own.unwrap_or_else(|| format!("{name}-{service}-1"))));
    }
    for (kind, key) in [("volume", "volumes"), ("network", "networks")] {
        let names = part(key).into_iter().flat_map(|part| part.keys()).filter_map(text);
        touches.extend(names.map(|of_it| format!("{kind} {name}_{of_it}")));
    }
    for (_, of_it) in services {
        let ports = of_it.get("ports").and_then(Value::as_sequence);
        touches.extend(ports.into_iter().flatten().filter_map(text).filter_map(|port| {
            let (there, _) = port.rsplit_once(':')?;
            Some(format!("port {there}"))
        }));
    }
}

fn each_once(touches: Vec<String>) -> Vec<String> {
    let mut met = BTreeSet::new();
    touches.into_iter().filter(|touched| met.insert(touched.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_read_for_what_it_makes() {
        let text = "services:\n  head: {container_name: c-head, ports: ['127.0.0.1:8265:8265']}\n  mine: {image: x}\n\
                    volumes: {objects: {}}\nnetworks: {default: {}}\n";
        let mut touches = Vec::new();
        of_project("p", &serde_yaml::from_str(text).unwrap(), &mut touches);
        let all =
            ["container c-head", "container p-mine-1", "volume p_objects", "network p_default", "port 127.0.0.1:8265"];
        assert_eq!(touches, all);
    }
}
