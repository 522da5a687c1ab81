//! Ends the processes of a cluster: first asked, then ended, until none is seen.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::ClusterProcesses;
use super::observe::mains;
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::name::Key;
use crate::util::process::{Identity, Process, table};

/// How long a reaper that was asked twice may take to end its node.
const AFTER_SECOND: Duration = Duration::from_secs(3);
/// How long after the last signal a process may take to vanish.
const AFTER_KILL: Duration = Duration::from_secs(10);

/// How much was seen of what a node started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// All of it.
    Whole,
    /// Perhaps not all: its reaper was killed, and nobody was there to get its orphans.
    Partial,
}

/// Ends all processes of one key. With none there it succeeds.
///
/// The node's reaper is asked with SIGTERM, and ends all that came of the node; after `grace` it is asked once more, and then waits
/// for nobody. What is left when it is gone, or stays though it was asked, is stopped until no more of it is found, and only then
/// ended: who is killed too early takes away what its children are known by. A process is signalled through a descriptor that pins
/// it, never by its number alone.
pub async fn end_processes(found: &ClusterProcesses, key: &Key, grace: Duration) -> Result<Sight> {
    let begin = Instant::now();
    let mut sight = None;
    let (mut asked, mut last) = (0, None);
    let mut stopped: BTreeSet<Identity> = BTreeSet::new();
    loop {
        let processes = found.of(key);
        let records: Vec<_> =
            found.records().into_iter().filter(|(of, _)| of == key).map(|(_, record)| record).collect();
        let table = table();
        let is_sure = || records.iter().all(|record| record.is_sure(&table));
        stopped.retain(Identity::is_alive);
        if processes.is_empty() && stopped.is_empty() && records.iter().all(super::Record::end_group) {
            let whole = sight.unwrap_or_else(is_sure);
            for record in records.iter().filter(|record| !record.is_over()) {
                record.finish(!whole);
            }
            return Ok(if whole { Sight::Whole } else { Sight::Partial });
        }
        let mains: Vec<&Process> = if *key == Key::agent() { processes.iter().collect() } else { mains(&processes) };
        // As long as a reaper lives, all that its node started is below it.
        sight.get_or_insert_with(|| !mains.is_empty() || (!records.is_empty() && is_sure()));
        let limit = if asked > 1 { grace + AFTER_SECOND } else { grace };
        if !mains.is_empty() && (asked == 0 || (asked == 1 && begin.elapsed() >= grace)) {
            for main in &mains {
                main.identity.signal(Signal::TERM);
            }
            asked += 1;
        } else if mains.is_empty() || begin.elapsed() >= limit {
            let seen: BTreeSet<Identity> = processes.iter().map(|process| process.identity.clone()).collect();
            let since = *last.get_or_insert_with(Instant::now);
            if !seen.is_subset(&stopped) && since.elapsed() < AFTER_KILL {
                for process in seen.difference(&stopped) {
                    process.signal(Signal::STOP);
                }
                stopped.extend(seen);
                continue;
            }
            stopped.extend(seen);
            for process in &stopped {
                process.signal(Signal::KILL);
            }
        }
        if last.is_some_and(|at| at.elapsed() > AFTER_KILL) {
            let left = stopped.iter().map(|process| format!("process {}", process.pid)).collect();
            return Err(Error::new(ErrorKind::LeftBehind, format!("end {}", key.display_name()))
                .because("its processes are still there ten seconds after SIGKILL: the kernel waits for something, such as a disk or a GPU, or they are another user's")
                .left(LeftBehind::Remaining(left))
                .hint(format!("gpucl down -c {}", found.scope().cluster)));
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}
