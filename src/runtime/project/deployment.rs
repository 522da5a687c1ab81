//! What passes between the verbs and the rendering of projects.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::name::{Key, Scope};
use crate::playbook::{Facts, Stage};
use crate::render::Library;
use crate::secret::Secrets;
use crate::spec::{NodeSpec, Spec};
use crate::state::{HostPorts, Pages, Paths};

/// The folders that gpucl has on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFolders {
    /// The one that holds everything of one cluster: absolute, or `~/…` in the home folder of who runs it.
    pub home: String,
    /// The one in which short paths lie, as sockets take no long ones; `/tmp/gpucl-UID` when empty.
    pub links: String,
    /// The one of Ray's environments, which clusters share; in the user's cache folder when empty.
    pub environments: String,
    /// The name of a file in `home` that is the provider's, and stays when all else goes; there is none when empty.
    pub claim: String,
}

impl HostFolders {
    /// Those of a host that is all gpucl's to lay out.
    pub fn at(home: String) -> Self {
        Self { home, ..Self::default() }
    }

    /// Those of a host that is this machine: its folder with its provider's claim, and the user's folders for all else.
    pub fn here(home: &Path, claim: String, paths: &Paths) -> Self {
        let text = |path: &Path| path.display().to_string();
        let environments = text(&paths.cache.join("environments"));
        Self { home: text(home), links: text(&paths.runtime), environments, claim }
    }
}

/// One host, as the rendering needs it.
#[derive(Debug, Clone)]
pub struct HostInput {
    /// Its key: `host0`.
    pub key: Key,
    /// Its tag: what its folder, project and containers are named and labelled by.
    pub tag: String,
    /// What it is; its GPUs carry their UUIDs once the driver runs.
    pub facts: Facts,
    /// The address that the other hosts reach it by.
    pub address: String,
    /// The ports of its services.
    pub ports: HostPorts,
    /// Where things lie on it.
    pub folders: HostFolders,
}

/// A web page of the cluster: how it is reached on its host, and how to log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// `dashboard`, `grafana`, `prometheus`, `object-store`, `jupyter`.
    pub name: String,
    /// The host that serves it.
    pub host: Key,
    /// Its port on that host's loopback.
    pub port: u16,
    /// Which credential opens it: the name of a file in the cluster's secrets folder, and the user to go with it.
    pub secret: String,
    /// The user's name, where the page asks for one.
    pub user: Option<String>,
    /// The name of the file with the user's name, where that is made for each cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_secret: Option<String>,
}

/// What one host is to run.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// The host.
    pub host: Key,
    /// The name of its project, which is the host's tag.
    pub project: String,
    /// The nodes of Ray that run in it.
    pub nodes: Vec<NodeSpec>,
    /// The digest of what each of them is started with, where that can be compared with what runs.
    pub digests: BTreeMap<Key, String>,
    /// The stage that delivers its files, starts it and waits until all is healthy. Its digest is the deployment's.
    pub stage: Stage,
    /// The shell text that prints what the host's checks saw, one JSON object a line behind `::check `.
    pub checks: String,
}

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

/// What is known of the other hosts of a cluster when one is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// There are none.
    None,
    /// Where they are is known only once all of them are there.
    Later,
    /// Where they are is known.
    Known,
}

/// What the stage `prepare` of a host is made from, and the one that opens it to the others.
pub struct PrepareRequest<'a> {
    /// The spec.
    pub spec: &'a Spec,
    /// All nodes of Ray.
    pub nodes: &'a [NodeSpec],
    /// All hosts that have told what they are.
    pub hosts: &'a [HostInput],
    /// What is known of the others.
    pub others: Others,
    /// The host that is to be prepared.
    pub host: &'a HostInput,
    /// Where playbooks come from.
    pub library: &'a Library,
}

/// What `down` leaves on a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CleanOptions {
    /// Keep the data volumes.
    pub keep_data: bool,
    /// Remove what was installed for us as well.
    pub purge: bool,
}

/// The nodes of one host.
pub fn nodes_of(nodes: &[NodeSpec], host: &Key) -> Vec<NodeSpec> {
    nodes.iter().filter(|node| node.host == *host).cloned().collect()
}
