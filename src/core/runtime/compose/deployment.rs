//! What each host should run: its project, the stage that brings it there, and its checks.

use std::collections::BTreeMap;

use super::images::host_images;
use super::project::Project;
use super::view::Cluster;
use super::{DeployRequest, Deployment, HostInput, checks, confirm_steps, stage};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::playbook::Stage;
use crate::runtime::project::look_inside;
use crate::spec::{NodeRole, NodeSpec};

/// One deployment for each host.
pub fn deployments(request: &DeployRequest<'_>) -> Result<Vec<Deployment>> {
    let cluster = Cluster::new(request)?;
    request.hosts.iter().map(|host| deployment(&cluster, host)).collect()
}

/// The deployment of one host. The drivers of the others need not run yet.
pub fn deployment_of(request: &DeployRequest<'_>, host: &Key) -> Result<Deployment> {
    let cluster = Cluster::new(request)?;
    let input = request.hosts.iter().find(|input| input.key == *host).ok_or_else(|| {
        Error::new(ErrorKind::Internal, format!("render the project of {}", host.display_name()))
            .because("it is not one of the hosts")
    })?;
    deployment(&cluster, input)
}

fn deployment(cluster: &Cluster<'_>, host: &HostInput) -> Result<Deployment> {
    let request = cluster.request;
    let nodes: Vec<NodeSpec> = request.nodes.iter().filter(|node| node.host == host.key).cloned().collect();
    let is_head = nodes.iter().any(|node| node.role == NodeRole::Head);
    let images = host_images(request.spec, &host.facts, is_head, request.library)?;
    let project = Project { cluster, host, images: &images, is_head };
    let files = project.files(&nodes)?;
    let checks = checks::checks(cluster, host, &images.ray)?;
    let mut stage = stage::deploy(&project, files, &nodes, checks::early_client(cluster, host));
    if cluster.bridge {
        // Several hosts are checked once all of them are up.
        stage.steps.push(look_inside(&checks));
    }
    if !cluster.bridge {
        // It runs over a connection opened after the firewall was set, which proves that the firewall can stay.
        let confirm = confirm_steps(&host.tag, request.library)?;
        let limit = stage.timeout + confirm.timeout;
        stage = Stage::join("deploy", vec![confirm, stage], limit);
    }
    // Compose does its own comparison.
    let digests = BTreeMap::new();
    Ok(Deployment { host: host.key.clone(), project: host.tag.clone(), nodes, digests, stage, checks })
}
