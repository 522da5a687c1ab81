//! Which processes of a cluster run on this machine: told by their environment, so that nothing needs to be remembered.

use std::collections::{BTreeMap, BTreeSet};

use crate::name::{Key, Scope, Tag};
use crate::plan::{Health, ObservedItem};
use crate::util::process::{Process, by_variable};

/// The variable that carries the tag; every process that a node starts inherits it.
pub const TAG_VARIABLE: &str = "GPUCL_TAG";
/// The launcher's file name: the process that runs it is the node, the others are its children.
pub const NODE_SCRIPT: &str = "node.py";

/// All processes of this scope, by the key in their tag.
///
/// Ray's own processes give themselves titles (`ray::DashboardAgent`), and those are written over the environment, tag
/// included. They are told by their parent, by their process group, or by where they work.
pub fn tagged(scope: &Scope) -> BTreeMap<Key, Vec<Process>> {
    let (bearers, mut others) = by_variable(TAG_VARIABLE);
    let mut found: BTreeMap<Key, Vec<Process>> = BTreeMap::new();
    // What the agent starts are nodes, and carries their tags from its first breath.
    let mut relatives: BTreeMap<u32, Key> = BTreeMap::new();
    for process in bearers {
        let tag = process.environment.get(TAG_VARIABLE).and_then(|text| text.parse::<Tag>().ok());
        if let Some(tag) = tag.filter(|tag| scope.holds(tag)) {
            if tag.key != Key::agent() {
                relatives.insert(process.identity.pid, tag.key.clone());
            }
            found.entry(tag.key).or_default().push(process);
        }
    }
    loop {
        let key_of = |process: &Process| {
            // A group bears the number of the process that began it. A group that somebody else began is not ours.
            let relative = relatives.get(&process.parent).or_else(|| relatives.get(&process.group));
            relative.cloned().or_else(|| works_for(scope, process))
        };
        let keys: Vec<Option<Key>> = others.iter().map(key_of).collect();
        if keys.iter().all(Option::is_none) {
            return found;
        }
        let mut rest = Vec::new();
        for (process, key) in others.into_iter().zip(keys) {
            match key {
                Some(key) => {
                    relatives.insert(process.identity.pid, key.clone());
                    found.entry(key).or_default().push(process);
                }
                None => rest.push(process),
            }
        }
        others = rest;
    }
}

/// The node that a process of Ray works for which has lost its tag, its parent and its group: it works in the folder of
/// one of our hosts, and its logs lie in the folder of its node.
fn works_for(scope: &Scope, process: &Process) -> Option<Key> {
    if !process.command.first().is_some_and(|title| title.starts_with("ray")) {
        return None;
    }
    let pid = process.identity.pid;
    let folder = fs_err::read_link(format!("/proc/{pid}/cwd")).ok()?;
    let host = folder.ancestors().find(|above| {
        let tag = above.file_name().and_then(|name| name.to_str()?.parse::<Tag>().ok());
        tag.is_some_and(|tag| scope.holds(&tag))
    })?;
    let files = fs_err::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let nodes = files.filter_map(|file| {
        let path = fs_err::read_link(file.ok()?.path()).ok()?;
        let node = path.strip_prefix(host.join("ray")).ok()?.iter().next()?.to_str()?.to_owned();
        let number = node.strip_prefix('w').map(|number| format!("worker{number}"));
        number.unwrap_or_else(|| Key::head().to_string()).parse().ok()
    });
    Some(nodes.min().unwrap_or_else(Key::head))
}

/// The nodes of this scope, and what is left of dead ones.
pub fn observe_nodes(scope: &Scope) -> Vec<ObservedItem> {
    let mut nodes = Vec::new();
    for (key, processes) in tagged(scope).into_iter().filter(|(key, _)| *key != Key::agent()) {
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

/// The agents of this scope.
pub fn observe_agents(scope: &Scope) -> Vec<ObservedItem> {
    let processes = tagged(scope).remove(&Key::agent()).unwrap_or_default();
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
