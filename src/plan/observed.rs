//! What was seen to exist, duplicates included.

use std::collections::BTreeMap;

use crate::name::Key;
use crate::provider::ObservedResource;

/// Whether a thing does what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Good,
    /// It does not, and why.
    Broken(String),
}

/// A node that was seen on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedNode {
    /// Its key.
    pub key: Key,
    /// It runs.
    pub running: bool,
    /// The digest of what it was started with, where it carries one.
    pub digest: Option<String>,
}

/// What of a cluster was seen on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedProject {
    /// Its key: `project0`.
    pub key: Key,
    /// The host that it is on.
    pub host: Key,
    /// The project's name there.
    pub id: String,
    /// The digest of what was last brought up there to its end.
    pub digest: Option<String>,
    /// Whether all of its containers run as they should.
    pub health: Health,
    /// Some of it runs.
    pub running: bool,
    /// Its nodes.
    pub nodes: Vec<ObservedNode>,
    /// All that is there, in words; what is not told here is not there.
    pub remains: Vec<String>,
}

/// What was seen to exist of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// What providers made.
    pub resources: Vec<ObservedResource>,
    /// The digest of the preparation that each host last saw through.
    pub prepared: BTreeMap<Key, String>,
    /// The digest of what each host was last seen to let in from the others.
    pub firewalls: BTreeMap<Key, String>,
    /// What is on hosts; only those on which something is.
    pub projects: Vec<ObservedProject>,
}

impl Observed {
    /// Nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.projects.is_empty()
    }

    /// What was seen, in words, for `down` to say what is left.
    pub fn describe(&self) -> Vec<String> {
        let resources = self.resources.iter().map(|found| format!("{} {} ({})", found.kind.0, found.key, found.id));
        let projects = self
            .projects
            .iter()
            .flat_map(|found| found.remains.iter().map(|what| format!("{what} on {}", found.host.display_name())));
        resources.chain(projects).collect()
    }
}
