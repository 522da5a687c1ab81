//! The hosts of a cluster that are this machine.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind, Result};
use crate::host::LocalHost;
use crate::name::Key;
use crate::provider::HostPlace;
use crate::runtime::project::DATA_FOLDER;
use crate::state::ClusterState;

/// The data folder of the host that is this machine.
pub(in crate::cluster) fn data_here(state: &ClusterState) -> Option<PathBuf> {
    host_here(state, "head").ok().map(|(_, folder)| folder.join(DATA_FOLDER))
}

/// A host that is this machine and its folder, by the name of the host or of a node on it.
///
/// # Errors
/// When the cluster has no host of that name.
pub(super) fn host_here<'a>(state: &'a ClusterState, name: &str) -> Result<(&'a Key, &'a PathBuf)> {
    let plain = |text: &str| text.replace('-', "");
    let nodes = state.started_nodes();
    let mut known = Vec::new();
    for (key, host) in state.hosts() {
        let Some(HostPlace::Local { folder, .. }) = &host.place else { continue };
        let mut names = vec![key.display_name(), Key::head().display_name()];
        names.extend(nodes.iter().filter(|node| node.host == *key).map(|node| node.key.display_name()));
        if names.iter().any(|known| plain(known) == plain(name)) {
            return Ok((key, folder));
        }
        known.extend(names);
    }
    known.sort();
    known.dedup();
    Err(Error::new(ErrorKind::NotFound, format!("find the host {name}"))
        .because("the cluster has none of that name")
        .hint(format!("there are: {}", known.join(", "))))
}

/// The log files of a cluster's nodes and supervisor on this machine, by name.
pub fn node_logs(state: &ClusterState) -> Vec<(String, PathBuf)> {
    let folder = |host: &Key| match state.host(host)?.place.as_ref()? {
        HostPlace::Local { folder, .. } => Some(folder.join("logs")),
        HostPlace::Ssh { .. } => None,
    };
    let log = |host: &Key, name: String| Some((name.clone(), folder(host)?.join(format!("{name}.log"))));
    let nodes = state.started_nodes();
    let supervisor = nodes.first().and_then(|head| log(&head.host, "supervisor".to_owned()));
    nodes.iter().filter_map(|node| log(&node.host, node.key.display_name())).chain(supervisor).collect()
}

/// The hosts of a cluster that are this machine.
pub fn local_hosts(state: &ClusterState, environment: &[(OsString, OsString)]) -> Result<Vec<LocalHost>> {
    let hosts = state.hosts().filter_map(|(key, host)| match &host.place {
        Some(HostPlace::Local { folder, .. }) => Some((key, folder.clone())),
        _ => None,
    });
    hosts.map(|(key, folder)| LocalHost::new(key.display_name(), folder, environment.iter().cloned())).collect()
}
