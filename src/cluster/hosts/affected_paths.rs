//! The affected paths of `up` on each host, from playbooks and rendered projects.

use std::collections::BTreeSet;

use serde_yaml::Value;

use super::layout::{Layout, project_of};
use crate::cluster::outcome::HostAffectedPaths;
use crate::error::Result;
use crate::name::Key;
use crate::plan::{Action, HostAction, Plan};
use crate::playbook::Stage;
use crate::runtime::project::{Deployment, HostInput};
use crate::state::Pages;

/// The key that cloud-init writes, and `up` replaces.
const HOST_KEY: &str = "file /etc/ssh/ssh_host_ed25519_key";

/// The affected paths of a plan on all remote hosts; none until every host has facts.
pub(super) fn affected_paths(
    mut layout: Layout<'_>,
    pages: &Pages,
    plan: &Plan,
    replaces_host_keys: bool,
) -> Result<Vec<HostAffectedPaths>> {
    // The names of containers are known before drivers report the ids of GPUs.
    layout.hosts.iter_mut().for_each(name_gpus);
    let Ok(Some(nodes)) = layout.nodes_if_complete() else { return Ok(Vec::new()) };
    let deployments = layout.deployments(&nodes, pages)?;
    let mut all = Vec::new();
    // On this machine nothing but the user's own folders is affected.
    for HostInput { key: host, folders, .. } in layout.hosts.iter().filter(|host| host.folders.claim.is_empty()) {
        let does = |which: &dyn Fn(&HostAction) -> bool, key: &Key| {
            let mut of_key = plan.operations.iter().filter(|operation| operation.key == *key);
            of_key.any(|operation| matches!(&operation.action, Action::Host(action) if which(action)))
        };
        let prepares = does(&|action| matches!(action, HostAction::Prepare { .. }), host);
        let firewalls = does(&|action| matches!(action, HostAction::SetFirewall { .. }), host);
        let fills = does(&|action| matches!(action, HostAction::Fill { .. }), host);
        let deploys = does(&|action| matches!(action, HostAction::Deploy { .. }), &project_of(host));
        let mut affected_paths = Vec::new();
        if prepares || firewalls || fills || deploys {
            affected_paths.push(format!("folder {}", folders.home));
        }
        if prepares {
            affected_paths.extend(replaces_host_keys.then(|| HOST_KEY.to_owned()));
            affected_paths.push(format!("folder {}", layout.runtime().folders()));
            said_by(&layout.preparation(host, &nodes)?, &mut affected_paths);
        }
        if firewalls {
            said_by(&layout.firewall(host, &nodes)?, &mut affected_paths);
        }
        if fills && let Some(filling) = layout.filling(host, &nodes)? {
            said_by(&filling.stage, &mut affected_paths);
        }
        let of_host = deployments.iter().find(|deployment| deployment.host == *host);
        if let (true, Some(deployment)) = (deploys, of_host) {
            said_by(&deployment.stage, &mut affected_paths);
            read_from(deployment, &mut affected_paths);
        }
        if !affected_paths.is_empty() {
            all.push(HostAffectedPaths { host: host.display_name(), affected_paths: each_once(affected_paths) });
        }
    }
    Ok(all)
}

/// Fills in placeholders for the ids that a host without its driver cannot report.
fn name_gpus(host: &mut HostInput) {
    for gpu in &mut host.facts.gpus {
        gpu.uuid.get_or_insert_with(|| "GPU-not-known-yet".to_owned());
        gpu.render.get_or_insert_with(|| "not-known-yet".to_owned());
    }
}

fn said_by(stage: &Stage, affected_paths: &mut Vec<String>) {
    affected_paths.extend(stage.steps.iter().flat_map(|step| step.affected_paths.iter().cloned()));
}

/// Adds what Compose creates from a host's files.
fn read_from(deployment: &Deployment, affected_paths: &mut Vec<String>) {
    for file in &deployment.stage.files {
        if !file.path.starts_with("compose/") {
            continue;
        }
        let Ok(text) = std::str::from_utf8(&file.bytes) else { continue };
        // Only project files have `services`; the others are configuration of services.
        let Ok(Value::Mapping(project)) = serde_yaml::from_str::<Value>(text) else { continue };
        of_project(&deployment.project, &project, affected_paths);
    }
}

fn of_project(name: &str, project: &serde_yaml::Mapping, affected_paths: &mut Vec<String>) {
    let part = |key: &str| project.get(key).and_then(Value::as_mapping);
    let Some(services) = part("services") else { return };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    for (service, of_it) in services {
        let Some(service) = text(service) else { continue };
        let own = of_it.get("container_name").and_then(text);
        affected_paths.push(format!("container {}", own.unwrap_or_else(|| format!("{name}-{service}-1"))));
    }
    for (kind, key) in [("volume", "volumes"), ("network", "networks")] {
        let names = part(key).into_iter().flat_map(|part| part.keys()).filter_map(text);
        affected_paths.extend(names.map(|of_it| format!("{kind} {name}_{of_it}")));
    }
    for (_, of_it) in services {
        let ports = of_it.get("ports").and_then(Value::as_sequence);
        affected_paths.extend(ports.into_iter().flatten().filter_map(text).filter_map(|port| {
            let (there, _) = port.rsplit_once(':')?;
            Some(format!("port {there}"))
        }));
    }
}

fn each_once(affected_paths: Vec<String>) -> Vec<String> {
    let mut met = BTreeSet::new();
    affected_paths.into_iter().filter(|path| met.insert(path.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_affected_paths_of_a_project_are_read_from_its_file() {
        let text = "services:\n  head: {container_name: c-head, ports: ['127.0.0.1:8265:8265']}\n  mine: {image: x}\n\
                    volumes: {objects: {}}\nnetworks: {default: {}}\n";
        let mut affected_paths = Vec::new();
        of_project("p", &serde_yaml::from_str(text).unwrap(), &mut affected_paths);
        let all =
            ["container c-head", "container p-mine-1", "volume p_objects", "network p_default", "port 127.0.0.1:8265"];
        assert_eq!(affected_paths, all);
    }
}
