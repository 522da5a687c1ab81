//! From a spec to compose projects.

use super::{Deployment, HostInput, HostPorts, Page, Pages};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{Key, Scope};
use crate::plan::NodeSpec;
use crate::render::Library;
use crate::secret::Secrets;
use crate::spec::Spec;

/// What projects are rendered from.
pub struct DeployRequest<'a> {
    /// The spec.
    pub spec: &'a Spec,
    /// Whose and which cluster.
    pub scope: &'a Scope,
    /// All nodes of Ray, the head first.
    pub nodes: &'a [NodeSpec],
    /// All hosts; the first has the head and the services.
    pub hosts: &'a [HostInput],
    /// The ports of the pages on the user's machine.
    pub pages: &'a Pages,
    /// The cluster's credentials.
    pub secrets: &'a Secrets,
    /// Where templates come from.
    pub library: &'a Library,
}

/// One deployment for each host.
pub fn deployments(request: &DeployRequest<'_>) -> Result<Vec<Deployment>> {
    let _ = request;
    Err(Error::new(ErrorKind::Unsupported, "render the compose projects"))
}

/// The pages that a cluster of this spec has, on the host with the head.
pub fn pages(spec: &Spec, head_host: &Key, ports: HostPorts) -> Vec<Page> {
    let _ = (spec, head_host, ports);
    Vec::new()
}
