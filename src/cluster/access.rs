//! The addresses of a running cluster, from its state.

use std::path::Path;

use super::errors::not_running;
use super::machines::data_here;
use crate::error::Result;
use crate::name::Key;
use crate::ray::Access;
use crate::state::{ClusterState, HostNotes, Paths};

/// The address of hosts that are this machine.
const LOOPBACK: &str = "127.0.0.1";

/// The addresses of a running cluster, from its state. Those of remote hosts and platforms work while `gpucl dashboard`
/// forwards them.
///
/// # Errors
/// If it does not run.
pub fn access(paths: &Paths, state: &ClusterState) -> Result<Access> {
    access_of(state, &paths.cluster(&state.name)).ok_or_else(|| not_running(state))
}

/// The addresses of a cluster with this folder; `None` if it does not run.
pub(super) fn access_of(state: &ClusterState, folder: &Path) -> Option<Access> {
    let is_stopped = match state.platform() {
        Some(platform) => platform.stopped,
        None => state.project(&Key::project(0))?.stopped,
    };
    let pages = state.pages().filter(|_| !is_stopped)?;
    let token_path = crate::secret::ray_token_path(folder);
    if state.is_here() {
        let HostNotes { ports, ray_env, .. } = state.host(&Key::host(0))?;
        let ports = ports.as_ref()?;
        return Some(Access {
            dashboard_url: format!("http://{LOOPBACK}:{}", ports.dashboard),
            gcs_address: format!("{LOOPBACK}:{}", ports.ray),
            token_path,
            environment: ray_env.clone(),
            data: data_here(state),
            client_address: format!("ray://{LOOPBACK}:{}", ports.client),
        });
    }
    let at = |name: &str| pages.get(name).map(|port| format!("{LOOPBACK}:{port}"));
    Some(Access {
        dashboard_url: format!("http://{}", at("dashboard")?),
        // The GCS is reachable from the cluster's nodes only, not from here.
        gcs_address: String::new(),
        token_path,
        environment: None,
        data: None,
        client_address: format!("ray://{}", at("client")?),
    })
}
