//! The observation: everything found to exist, duplicates included.

use std::collections::BTreeMap;

use super::Remnant;
use crate::name::Key;
use crate::provider::ObservedResource;

/// Whether a project works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It works.
    Good,
    /// It does not work, for this reason.
    Broken(String),
}

/// A node found on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedNode {
    /// The key of the node.
    pub key: Key,
    /// Whether it is running.
    pub running: bool,
    /// The digest of its settings, if it carries one.
    pub digest: Option<String>,
}

/// The project of a cluster, as found on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedProject {
    /// The project's key: `project0`.
    pub key: Key,
    /// The key of its host.
    pub host: Key,
    /// The project's name on the host.
    pub id: String,
    /// The digest of the last deployment that finished.
    pub digest: Option<String>,
    /// Whether all of its nodes and services work.
    pub health: Health,
    /// Whether anything of it is running.
    pub running: bool,
    /// The nodes found on the host.
    pub nodes: Vec<ObservedNode>,
    /// A complete list of what is there.
    pub remains: Vec<Remnant>,
}

impl ObservedProject {
    /// Whether it is only what `down --keep-data` has kept: volumes and the data folder.
    pub(super) fn is_kept_data(&self) -> bool {
        !self.running && self.nodes.is_empty() && !self.remains.is_empty() && self.remains.iter().all(Remnant::is_data)
    }
}

/// Everything found to exist of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Resources at the provider.
    pub resources: Vec<ObservedResource>,
    /// The digest of the last successful preparation of each host.
    pub prepared: BTreeMap<Key, String>,
    /// The digest of each host's firewall rules.
    pub firewalls: BTreeMap<Key, String>,
    /// The digest of each host's data sets; empty where one of them is gone or fails its check.
    pub filled: BTreeMap<Key, String>,
    /// The projects on hosts that have one.
    pub projects: Vec<ObservedProject>,
}

impl Observed {
    /// Whether nothing exists.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.projects.is_empty()
    }

    /// Describes everything, for `down` to report what is left.
    pub fn describe(&self) -> Vec<String> {
        let resources = self.resources.iter().map(|found| format!("{} {} ({})", found.kind.0, found.key, found.id));
        let projects = self
            .projects
            .iter()
            .flat_map(|found| found.remains.iter().map(|what| format!("{what} on {}", found.host.display_name())));
        resources.chain(projects).collect()
    }
}
