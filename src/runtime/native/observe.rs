//! Which processes of a cluster run on this machine: told by their environment, so that nothing needs to be remembered.

use std::collections::{BTreeMap, BTreeSet};

use crate::name::{Key, Scope, Tag};
use crate::plan::{Health, ObservedItem};
use crate::util::process::{Process, with_variable};

/// The variable that carries the tag; every process that a node starts inherits it.
pub const TAG_VARIABLE: &str = "GPUCL_TAG";
/// The launcher's file name: the process that runs it is the node, the others are its children.
pub const NODE_SCRIPT: &str = "node.py";

/// All processes of this scope, by the key in their tag.
pub fn tagged(scope: &Scope) -> BTreeMap<Key, Vec<Process>> {
    let mut found: BTreeMap<Key, Vec<Process>> = BTreeMap::new();
    for process in with_variable(TAG_VARIABLE) {
        let tag = process.environment.get(TAG_VARIABLE).and_then(|text| text.parse::<Tag>().ok());
        if let Some(tag) = tag.filter(|tag| scope.holds(tag)) {
            found.entry(tag.key).or_default().push(process);
        }
    }
    found
}

/// The agents of this scope, and its nodes with what is left of dead ones, by one look at all processes.
pub fn observe_all(scope: &Scope) -> (Vec<ObservedItem>, Vec<ObservedItem>) {
    let mut found = tagged(scope);
    let agents = agents(&found.remove(&Key::agent()).unwrap_or_default());
    (agents, nodes(found))
}

/// The nodes of this scope, and what is left of dead ones.
pub fn observe_nodes(scope: &Scope) -> Vec<ObservedItem> {
    observe_all(scope).1
}

fn nodes(found: BTreeMap<Key, Vec<Process>>) -> Vec<ObservedItem> {
    let mut nodes = Vec::new();
    for (key, processes) in found {
        let mains: Vec<&Process> = processes.iter().filter(|process| is_main(process, NODE_SCRIPT)).collect();
        for main in &mains {
            nodes.push(ObservedItem {
                key: key.clone(),
                id: main.identity.to_string(),
                digest: main.environment.get("GPUCL_DIGEST").cloned(),
                health: Health::Good,
            });
        }
        if let (true, Some(left)) = (mains.is_empty(), processes.first()) {
            nodes.push(ObservedItem {
                key: key.clone(),
                id: left.identity.to_string(),
                digest: None,
                health: Health::Broken(format!("it ended and left {} processes", processes.len())),
            });
        }
    }
    nodes
}

fn agents(processes: &[Process]) -> Vec<ObservedItem> {
    processes
        .iter()
        .map(|process| ObservedItem {
            key: Key::agent(),
            id: process.identity.to_string(),
            digest: process.environment.get("GPUCL_DIGEST").cloned(),
            health: Health::Good,
        })
        .collect()
}

fn is_main(process: &Process, script: &str) -> bool {
    process.command.iter().any(|word| word.rsplit('/').next() == Some(script))
}

/// The numbers of all processes of this scope.
pub(crate) fn pids(scope: &Scope) -> BTreeSet<u32> {
    tagged(scope).values().flatten().map(|process| process.identity.pid).collect()
}
