//! The processes that the agent looks after.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use tokio::process::{Child, Command};

use super::protocol::NodeStatus;
use crate::name::Key;
use crate::plan::NodeRole;
use crate::runtime::native::{ClusterProcesses, Launch, Record, observe_nodes};
use crate::util::fs;
use crate::util::process::{Identity, Stat, below, boot_id, children, table};

/// How often a worker is started again before it is left as it is, unless it ran for [`LONG_ENOUGH`] in between.
const MOST_RESTARTS: u32 = 5;
/// After this time a worker counts as having run well.
const LONG_ENOUGH: Duration = Duration::from_secs(300);
/// How long orphans may take to vanish before it is gone on without them; they are looked for again at the next look.
const ADOPTED_LIMIT: Duration = Duration::from_secs(2);

/// A node under the agent's eye.
struct Node {
    launch: Launch,
    identity: Identity,
    /// Its handle, when this very agent started it.
    child: Option<Child>,
    started: Instant,
    ended: Option<String>,
    restarts: u32,
    restart_at: Option<Instant>,
}

/// What became of a node while nobody looked.
pub(super) enum Change {
    /// It ended by itself.
    Ended(Key, String),
    /// It was started again.
    Restarted(Key, Identity),
}

/// All nodes under the agent's eye.
pub(super) struct Nodes {
    processes: ClusterProcesses,
    nodes: BTreeMap<Key, Node>,
    /// The reapers that this very agent started, with the host's folder; also those that it was told to forget.
    reapers: Vec<(Identity, Key, PathBuf)>,
    /// Workers are started again.
    pub(super) restart: bool,
}

impl Nodes {
    pub(super) fn new(processes: ClusterProcesses) -> Self {
        Self { processes, nodes: BTreeMap::new(), reapers: Vec::new(), restart: false }
    }

    /// Takes over what an earlier agent started.
    pub(super) fn take_over(&mut self, launches: Vec<Launch>) {
        let seen = observe_nodes(self.processes.scope());
        for launch in launches {
            let identity = seen.iter().find(|node| node.key == launch.key).and_then(|node| node.id.parse().ok());
            if let Some(identity) = identity {
                let key = launch.key.clone();
                self.nodes.insert(key, Node::new(launch, identity, None));
            }
        }
    }

    /// Starts a node; one that runs with the same digest is handed back as it is.
    pub(super) fn start(&mut self, launch: Launch) -> Result<Identity, String> {
        if let Some(node) = self.nodes.get(&launch.key)
            && node.launch.digest == launch.digest
            && node.identity.is_alive()
        {
            return Ok(node.identity.clone());
        }
        let (child, identity) = spawn(&launch)?;
        self.reapers.push((identity.clone(), launch.key.clone(), launch.folder.clone()));
        self.nodes.insert(launch.key.clone(), Node::new(launch, identity.clone(), Some(child)));
        Ok(identity)
    }

    /// Forgets a node that somebody else will end; its exit status is still collected.
    pub(super) fn let_go(&mut self, key: &Key) {
        if let Some(mut node) = self.nodes.remove(key)
            && let Some(mut child) = node.child.take()
        {
            tokio::spawn(async move {
                let _ = child.wait().await;
            });
        }
    }

    /// Looks at all nodes once, and starts again what is due.
    pub(super) fn look(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (key, node) in &mut self.nodes {
            if node.ended.is_none() {
                if let Some(how) = node.has_ended() {
                    changes.push(Change::Ended(key.clone(), how.clone()));
                    if node.started.elapsed() > LONG_ENOUGH {
                        node.restarts = 0;
                    }
                    // A head that is started again is another cluster: its jobs and objects are gone. That is for a person
                    // to decide, by `gpucl up`.
                    if self.restart && node.launch.role == NodeRole::Worker && node.restarts < MOST_RESTARTS {
                        node.restart_at = Some(Instant::now() + Duration::from_secs(1 << node.restarts));
                    }
                    node.ended = Some(how);
                }
            } else if node.restart_at.is_some_and(|at| at <= Instant::now()) {
                // Children of the one that ended would hold its ports and its GPU.
                let left = self.processes.of(key);
                if !left.is_empty() {
                    for process in left {
                        process.identity.signal(Signal::KILL);
                    }
                    continue;
                }
                node.restart_at = None;
                node.restarts += 1;
                match spawn(&node.launch) {
                    Ok((child, identity)) => {
                        self.reapers.push((identity.clone(), key.clone(), node.launch.folder.clone()));
                        changes.push(Change::Restarted(key.clone(), identity.clone()));
                        node.child = Some(child);
                        node.identity = identity;
                        node.started = Instant::now();
                        node.ended = None;
                    }
                    Err(why) => node.ended = Some(why),
                }
            }
        }
        changes
    }

    /// Ends what became a child of this process because the reaper of its node was killed, with all that is below it.
    ///
    /// This agent is the next subreaper above the reapers that it started: what is its child and none of them is such an orphan.
    pub(super) async fn end_adopted(&mut self) {
        let begun = Instant::now();
        let mut stopped = BTreeMap::new();
        loop {
            // Most often there are none, and the kernel says so at once.
            let is_own = |pid: &u32| self.reapers.iter().any(|(reaper, _, _)| reaper.pid == *pid);
            if children().is_some_and(|children| children.iter().all(is_own)) {
                break;
            }
            let table = table();
            let orphans = self.orphans(&table);
            if orphans.is_empty() {
                break;
            }
            let all = orphans.iter().copied().chain(below(&table, orphans.iter().copied()));
            let running = all.filter_map(|pid| Some((pid, *table.get(&pid)?))).filter(|(_, stat)| stat.runs);
            let seen: BTreeMap<u32, Stat> = running.collect();
            let is_new =
                |(pid, stat): &(&u32, &Stat)| stopped.get(*pid).is_none_or(|before: &Stat| before.start != stat.start);
            // Who is ended before its children are seen takes away what they are known by.
            let signal = if seen.iter().any(|entry| is_new(&entry)) { Signal::STOP } else { Signal::KILL };
            for (pid, stat) in &seen {
                Identity { pid: *pid, start: stat.start, boot: boot_id() }.signal(signal);
            }
            stopped.extend(seen);
            // Those that have ended are waited for by nobody else.
            for pid in &orphans {
                let _ = waitpid(i32::try_from(*pid).ok().and_then(Pid::from_raw), WaitOptions::NOHANG);
            }
            if begun.elapsed() > ADOPTED_LIMIT {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.reapers.retain(|(identity, key, folder)| {
            let record = Record::of(folder, key).filter(|record| record.is_of(identity) && !record.is_over());
            match record {
                _ if identity.is_alive() => true,
                // Nobody was missed: the orphans had nowhere else to go.
                Some(record) if record.end_group() => {
                    record.finish(false);
                    false
                }
                Some(_) => true,
                None => false,
            }
        });
    }

    /// The children of this process that it did not start itself.
    fn orphans(&self, table: &BTreeMap<u32, Stat>) -> Vec<u32> {
        let me = std::process::id();
        let is_own = |pid: u32, stat: &Stat| {
            self.reapers.iter().any(|(identity, _, _)| identity.pid == pid && identity.start == stat.start)
        };
        table
            .iter()
            .filter(|(_, stat)| stat.parent == me)
            .filter(|(pid, stat)| !is_own(**pid, stat))
            .map(|(pid, _)| *pid)
            .collect()
    }

    pub(super) fn status(&self) -> Vec<NodeStatus> {
        self.nodes
            .iter()
            .map(|(key, node)| NodeStatus {
                key: key.clone(),
                id: node.identity.to_string(),
                alive: node.ended.is_none() && node.identity.is_alive(),
                ended: node.ended.clone(),
                restarts: node.restarts,
            })
            .collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl Node {
    fn new(launch: Launch, identity: Identity, child: Option<Child>) -> Self {
        Self { launch, identity, child, started: Instant::now(), ended: None, restarts: 0, restart_at: None }
    }

    fn has_ended(&mut self) -> Option<String> {
        if let Some(child) = &mut self.child {
            return match child.try_wait() {
                Ok(Some(status)) => Some(status.to_string()),
                Ok(None) => None,
                Err(error) => Some(error.to_string()),
            };
        }
        (!self.identity.is_alive()).then(|| "it does not run any more".to_owned())
    }
}

/// Starts the process of a launch in a process group of its own, with nothing of the terminal.
fn spawn(launch: &Launch) -> Result<(Child, Identity), String> {
    let fail = |error: std::io::Error| format!("starting {} failed: {error}", launch.key.display_name());
    let (program, arguments) = launch.argv.split_first().ok_or("an empty command line")?;
    let log = fs::open_append(&launch.log).map_err(fail)?;
    let errors = log.try_clone().map_err(fail)?;
    let child = Command::new(program)
        .args(arguments)
        .envs(&launch.environment)
        .current_dir(&launch.folder)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .process_group(0)
        .spawn()
        .map_err(fail)?;
    let identity = child.id().and_then(Identity::of).ok_or_else(|| {
        format!("{} ended as soon as it was started; its log is {}", launch.key.display_name(), launch.log.display())
    })?;
    Ok((child, identity))
}
