//! What a site asks of programs on its hosts.

use serde::{Deserialize, Serialize};

/// Where Python packages come from on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Packages {
    /// From a package index, over the network.
    #[default]
    Index,
    /// From the site's own wheels, as pip's configuration there names them: `pip install --no-index`.
    Site,
    /// From the wheels in this folder of the host: `pip install --no-index --find-links FOLDER`.
    Folder(String),
}

/// What was found of a site that clusters there depend on, for `gpucl doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteFinding {
    /// What was looked at: `sshd`.
    pub what: &'static str,
    /// Whether it is there and usable; `None` if clusters do without.
    pub works: Option<bool>,
    /// What was found there, in words.
    pub saw: String,
    /// What to do about it.
    pub fix: Option<String>,
}

/// What is particular about a host beyond how it is reached. Empty for machines that gpucl may arrange as it likes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Site {
    /// The folder for everything of one cluster, absolute; the runtime's own when empty.
    pub folder: String,
    /// The folder of Ray's environments, absolute; the runtime's own when empty.
    pub environments: String,
    /// The environment modules (Lmod, Environment Modules) to load, in order, before Python is looked for and before
    /// every node is started.
    pub modules: Vec<String>,
    /// Where Python packages come from.
    pub packages: Packages,
    /// Ray may use the network between the cluster's hosts without a firewall: without root there is none, and the site
    /// decides who else is on that network.
    pub open_network: bool,
}

impl Site {
    /// Whether nothing is particular.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}
