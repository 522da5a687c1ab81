//! Which processes of a cluster run on this machine: told by their environment, so that nothing needs to be remembered, and by
//! what reapers have written down of those that have none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Record;
use crate::name::{Key, Scope, Tag};
use crate::plan::{Health, ObservedItem};
use crate::util::process::{Identity, Process, boot_id, command, table, with_variable};

/// The variable that carries the tag; every process that a node starts inherits it.
pub const TAG_VARIABLE: &str = "GPUCL_TAG";
/// The reaper's file name: the process that runs it is the node, the others are below it.
pub const NODE_SCRIPT: &str = "reaper.py";

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

/// All processes of one cluster on this machine, whatever they did to their environment.
#[derive(Debug, Clone)]
pub struct ClusterProcesses {
    scope: Scope,
    hosts: PathBuf,
}

impl ClusterProcesses {
    /// Those of this scope; the hosts have their folders below the user's folder for data.
    pub fn new(scope: &Scope, data: &Path) -> Self {
        Self { scope: scope.clone(), hosts: data.join("hosts") }
    }

    /// Whose and which cluster.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// What their reapers have written down.
    pub fn records(&self) -> Vec<(Key, Record)> {
        Record::of_cluster(&self.scope, &self.hosts)
    }

    /// Those that carry the tag, those that are written down, and whatever is below any of them, by key.
    pub fn found(&self) -> BTreeMap<Key, Vec<Process>> {
        let mut found = tagged(&self.scope);
        let table = table();
        let mut keys: BTreeMap<u32, Key> = BTreeMap::new();
        for (key, processes) in &found {
            keys.extend(processes.iter().map(|process| (process.identity.pid, key.clone())));
        }
        for (key, record) in self.records() {
            for pid in record.living(&table) {
                keys.entry(pid).or_insert_with(|| key.clone());
            }
        }
        let boot = boot_id();
        for (pid, stat) in table.iter().filter(|(_, stat)| stat.runs) {
            // The nearest above it says whose it is.
            let mut above = *pid;
            let key = loop {
                match (keys.get(&above), table.get(&above)) {
                    (Some(key), _) => break Some(key),
                    (None, Some(stat)) if stat.parent != 0 && stat.parent != above => above = stat.parent,
                    _ => break None,
                }
            };
            let Some(key) = key else { continue };
            let processes = found.entry(key.clone()).or_default();
            if !processes.iter().any(|process| process.identity.pid == *pid) {
                let identity = Identity { pid: *pid, start: stat.start, boot: boot.clone() };
                let environment = BTreeMap::new();
                processes.push(Process { identity, parent: stat.parent, command: command(*pid), environment });
            }
        }
        found
    }

    /// Those of one key.
    pub fn of(&self, key: &Key) -> Vec<Process> {
        self.found().remove(key).unwrap_or_default()
    }

    /// The agents, and the nodes with what is left of dead ones, by one look at all processes.
    pub fn observe(&self) -> (Vec<ObservedItem>, Vec<ObservedItem>) {
        observed(self.found())
    }
}

/// The agents of this scope, and its nodes with what is left of dead ones, by their tags alone.
pub fn observe_all(scope: &Scope) -> (Vec<ObservedItem>, Vec<ObservedItem>) {
    observed(tagged(scope))
}

fn observed(mut found: BTreeMap<Key, Vec<Process>>) -> (Vec<ObservedItem>, Vec<ObservedItem>) {
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
        let mains = mains(&processes);
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
    // It may have got orphans of a node that was killed.
    processes
        .iter()
        .filter(|process| process.environment.contains_key(TAG_VARIABLE))
        .map(|process| ObservedItem {
            key: Key::agent(),
            id: process.identity.to_string(),
            digest: process.environment.get("GPUCL_DIGEST").cloned(),
            health: Health::Good,
        })
        .collect()
}

/// The reapers among the processes of a node. For a moment its child shows the same command line.
pub(super) fn mains(processes: &[Process]) -> Vec<&Process> {
    let runs_it = |process: &&Process| {
        process.environment.contains_key(TAG_VARIABLE)
            && process.command.iter().any(|word| word.rsplit('/').next() == Some(NODE_SCRIPT))
    };
    let found: Vec<&Process> = processes.iter().filter(runs_it).collect();
    let is_first = |process: &&&Process| !found.iter().any(|other| other.identity.pid == process.parent);
    found.iter().filter(is_first).copied().collect()
}

/// The numbers of all processes of this scope.
pub(crate) fn pids(scope: &Scope) -> BTreeSet<u32> {
    tagged(scope).values().flatten().map(|process| process.identity.pid).collect()
}
