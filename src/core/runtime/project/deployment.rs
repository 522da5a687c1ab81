//! Input and output of project rendering.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::name::{Key, Scope};
use crate::playbook::{Facts, Stage};
use crate::provider::Site;
use crate::render::Library;
use crate::secret::Secrets;
use crate::spec::{NodeSpec, Spec};
use crate::state::{HostPorts, Pages, Paths};
use crate::util::digest;

/// The name of the data folder in a host's folder: what jobs, Jupyter and `gpucl cp` share.
pub const DATA_FOLDER: &str = "data";

/// gpucl's folders on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFolders {
    /// The folder for everything of one cluster: absolute, or `~/…` in the home folder of the account.
    pub home: String,
    /// The folder of Ray's environments, shared by clusters; in the user's cache folder when empty.
    pub environments: String,
    /// The name of the provider's file in `home`, which stays when all else is removed; empty when there is none.
    pub claim: String,
}

impl HostFolders {
    /// The folders of a host with gpucl's default layout.
    pub fn at(home: String) -> Self {
        Self { home, ..Self::default() }
    }

    /// These, with what a host's site says otherwise.
    #[must_use]
    pub fn at_site(self, site: &Site) -> Self {
        let or = |site: &String, own: String| if site.is_empty() { own } else { site.clone() };
        Self { home: or(&site.folder, self.home), environments: or(&site.environments, self.environments), ..self }
    }

    /// The data folder: absolute, or `~/…` as `home`.
    pub fn data(&self) -> String {
        format!("{}/{DATA_FOLDER}", self.home)
    }

    /// The folders of a host on this machine: its folder with its provider's claim, and the user's folders for the
    /// rest.
    pub fn here(home: &Path, claim: String, paths: &Paths) -> Self {
        let text = |path: &Path| path.display().to_string();
        Self { home: text(home), environments: text(&paths.cache.join("environments")), claim }
    }
}

/// One host, as input to rendering.
#[derive(Debug, Clone)]
pub struct HostInput {
    /// The key: `host0`.
    pub key: Key,
    /// The tag that names its folder and project and labels its containers.
    pub tag: String,
    /// The facts about it; GPUs have UUIDs once the driver runs.
    pub facts: Facts,
    /// The address that the other hosts use for it.
    pub address: String,
    /// The ports of its services.
    pub ports: HostPorts,
    /// gpucl's folders on it.
    pub folders: HostFolders,
    /// What is particular about its site.
    pub site: Site,
}

/// A web page of the cluster: its address on its host, and how to log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// `dashboard`, `grafana`, `prometheus`, `object-store`, `jupyter`.
    pub name: String,
    /// The host that serves it.
    pub host: Key,
    /// The port on that host's loopback.
    pub port: u16,
    /// The file in the cluster's secrets folder with the credential for it.
    pub secret: String,
    /// The user name, if the page asks for one.
    pub user: Option<String>,
    /// The file with the user name, if it is generated for each cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_secret: Option<String>,
}

/// What one host should run.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// The host.
    pub host: Key,
    /// The name of its project, which is the host's tag.
    pub project: String,
    /// The Ray nodes in it.
    pub nodes: Vec<NodeSpec>,
    /// The digest of each node's start parameters, where it can be compared with the running node.
    pub digests: BTreeMap<Key, String>,
    /// The stage that delivers the files, starts the project and waits until it is healthy. Its digest is the
    /// deployment's.
    pub stage: Stage,
    /// The shell code of the host's checks: it prints one JSON object per line after `::check `.
    pub checks: String,
}

/// The input for rendering projects.
pub struct DeployRequest<'a> {
    /// The spec.
    pub spec: &'a Spec,
    /// The owner and the cluster.
    pub scope: &'a Scope,
    /// All Ray nodes, the head first.
    pub nodes: &'a [NodeSpec],
    /// All hosts; the first has the head and the services.
    pub hosts: &'a [HostInput],
    /// The local ports of the pages on the user's machine.
    pub pages: &'a Pages,
    /// The cluster's credentials.
    pub secrets: &'a Secrets,
    /// Where templates come from.
    pub library: &'a Library,
}

/// What is known about a cluster's other hosts when one is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// There are no other hosts.
    None,
    /// Their addresses are known only once all hosts exist.
    Later,
    /// Their addresses are known.
    Known,
}

/// The input for the stages `prepare` and `firewall` of a host.
pub struct PrepareRequest<'a> {
    /// The spec.
    pub spec: &'a Spec,
    /// All Ray nodes.
    pub nodes: &'a [NodeSpec],
    /// All hosts with known facts.
    pub hosts: &'a [HostInput],
    /// What is known about the other hosts.
    pub others: Others,
    /// The host to prepare.
    pub host: &'a HostInput,
    /// Where playbooks come from.
    pub library: &'a Library,
    /// The files of the user's machine that the host should have.
    pub files: &'a [Bundle],
}

/// Files of the user's machine for one place in the data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The place in the data folder.
    pub to: String,
    /// The files, as JSON: each with its name, size, time, mode and SHA-256.
    pub list: String,
}

impl Bundle {
    fn name(&self) -> String {
        digest::short(self.to.as_bytes())
    }

    /// Where a host has the list, from its folder.
    pub fn listing(&self) -> String {
        format!("files/{}.json", self.name())
    }

    /// Where the files arrive on a host, from its folder.
    pub fn archive(&self) -> String {
        format!("files/{}.tar", self.name())
    }
}

/// How a host's data folder is filled.
#[derive(Debug, Clone)]
pub struct Filling {
    /// The stage that fills it.
    pub stage: Stage,
    /// For each of the [`PrepareRequest::files`], the script that prints the numbers of the files that the host wants,
    /// as `::want NUMBER`, and `::wanted` last.
    pub wants: Vec<String>,
}

/// How a host is cleaned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CleanOptions {
    /// The whole cluster ends, so nodes need not drain; otherwise this host leaves a cluster that goes on.
    pub ends_cluster: bool,
    /// Keep the data volumes and the data folder.
    pub keep_data: bool,
    /// Also remove what gpucl installed.
    pub purge: bool,
}

/// The nodes of one host.
pub fn nodes_of(nodes: &[NodeSpec], host: &Key) -> Vec<NodeSpec> {
    nodes.iter().filter(|node| node.host == *host).cloned().collect()
}
