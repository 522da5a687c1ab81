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

/// One thing that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedItem {
    /// The key in its tag.
    pub key: Key,
    /// Its id; for a process its identity.
    pub id: String,
    /// The digest that it carries of what was asked for, if it can carry one.
    pub digest: Option<String>,
    /// Whether it does what it is for.
    pub health: Health,
}

/// What of a cluster was seen on one host that runs its nodes in containers.
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
    /// Some of its containers run.
    pub running: bool,
    /// All that is there, in words; what is not told here is not there.
    pub remains: Vec<String>,
}

/// What was seen to exist of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// What providers made.
    pub resources: Vec<ObservedResource>,
    /// Agents.
    pub agents: Vec<ObservedItem>,
    /// Nodes of Ray, and what is left of dead ones.
    pub nodes: Vec<ObservedItem>,
    /// The digest of the preparation that each host last saw through.
    pub prepared: BTreeMap<Key, String>,
    /// The digest of what each host was last seen to let in from the others.
    pub guarded: BTreeMap<Key, String>,
    /// What is on hosts that run nodes in containers; only those on which something is.
    pub projects: Vec<ObservedProject>,
}

impl Observed {
    /// Nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.agents.is_empty() && self.nodes.is_empty() && self.projects.is_empty()
    }

    /// What was seen, in words, for `down` to say what is left.
    pub fn describe(&self) -> Vec<String> {
        let resources = self.resources.iter().map(|found| format!("{} {} ({})", found.kind.0, found.key, found.id));
        let agents = self.agents.iter().map(|found| format!("agent (process {})", pid(&found.id)));
        let nodes =
            self.nodes.iter().map(|found| format!("node {} (process {})", found.key.display_name(), pid(&found.id)));
        let projects = self
            .projects
            .iter()
            .flat_map(|found| found.remains.iter().map(|what| format!("{what} on {}", found.host.display_name())));
        resources.chain(agents).chain(nodes).chain(projects).collect()
    }
}

fn pid(id: &str) -> &str {
    id.split(':').next().unwrap_or(id)
}
