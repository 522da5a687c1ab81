//! Ends the processes of a tag: first asked, then ended, until none is seen.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{NODE_SCRIPT, tagged};
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::name::{Key, Scope};
use crate::util::process::Process;

/// How long after the last signal a process may take to vanish.
const AFTER_KILL: Duration = Duration::from_secs(10);

/// The processes of one key.
pub fn residue(scope: &Scope, key: &Key) -> Vec<Process> {
    tagged(scope).remove(key).unwrap_or_default()
}

/// Ends all processes of one key. With none there it succeeds.
///
/// The node itself is asked with SIGTERM, and ends its children; after `grace`, or when only children are left, the rest
/// is ended with SIGKILL. A process is signalled through a descriptor that pins it, never by its number alone.
pub async fn end_tagged(scope: &Scope, key: &Key, grace: Duration) -> Result<()> {
    let begin = Instant::now();
    let mut asked = false;
    let mut killed: Option<Instant> = None;
    loop {
        let processes = residue(scope, key);
        if processes.is_empty() {
            return Ok(());
        }
        let mains: Vec<&Process> = processes
            .iter()
            .filter(|process| {
                *key == Key::agent() || process.command.iter().any(|word| word.rsplit('/').next() == Some(NODE_SCRIPT))
            })
            .collect();
        if !asked && !mains.is_empty() {
            for main in &mains {
                main.identity.signal(Signal::TERM);
            }
            asked = true;
        } else if mains.is_empty() || begin.elapsed() >= grace {
            for process in &processes {
                process.identity.signal(Signal::KILL);
            }
            killed.get_or_insert_with(Instant::now);
        }
        if killed.is_some_and(|at| at.elapsed() > AFTER_KILL) {
            let left = processes.iter().map(|process| format!("process {}", process.identity.pid)).collect();
            return Err(Error::new(ErrorKind::LeftBehind, format!("end {}", key.display_name()))
                .because("its processes are still there ten seconds after SIGKILL; the kernel waits for something, such as a disk or a GPU")
                .left(LeftBehind::Remaining(left))
                .hint(format!("gpucl down -c {}", scope.cluster)));
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}
