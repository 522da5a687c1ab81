//! Waits until every node is in Ray's list with what was promised; sees at once when one dies instead.

use std::time::{Duration, Instant};

use super::Subject;
use crate::cluster::processes::world::is_running;
use crate::engine::{Cancel, Urgency};
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::name::Key;
use crate::ray::Node;
use crate::runtime::native::resource_of;
use crate::util::fs::{RECORD_LIMIT, read_tail};

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many lines of a dead node's log an error shows.
const LAST_LINES: usize = 12;

/// Waits until all nodes are alive, for as long as `timeouts.start` says.
pub(crate) async fn wait_ready(subject: &Subject<'_>, cancel: &Cancel) -> Result<()> {
    let limit = subject.spec.timeouts.start.0;
    let begin = Instant::now();
    let mut said = String::new();
    loop {
        if let Some(dead) = subject.nodes.iter().find(|node| !is_running(&subject.known, &node.key)) {
            return Err(died(subject, &dead.key).await);
        }
        let alive = alive_nodes(subject).await;
        let missing: Vec<String> = subject
            .nodes
            .iter()
            .filter(|node| !alive.as_ref().is_some_and(|alive| alive.iter().any(|found| is_node(found, &node.key))))
            .map(|node| node.key.display_name())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let waits_for = match alive {
            None => "the head to answer".to_owned(),
            Some(_) => format!("{} to join", missing.join(", ")),
        };
        if begin.elapsed() > limit {
            let logs = missing.first().cloned().unwrap_or_default();
            return Err(Error::new(ErrorKind::Timeout, format!("wait for {waits_for}"))
                .because(format!("it did not happen within {} (`timeouts.start`)", crate::util::human::duration(limit)))
                .because(last_lines(subject, missing.first()).await)
                .hint(format!("gpucl logs {logs} -c {}", subject.scope.cluster)));
        }
        if said != waits_for {
            subject.events.send(EventKind::Waiting {
                what: waits_for.clone(),
                limit_milliseconds: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            });
            said = waits_for;
        }
        if cancel.urgency() != Urgency::None {
            return Err(Error::new(ErrorKind::Cancelled, "wait for the nodes").because("it was stopped with Ctrl-C"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The nodes that Ray calls alive; `None` while nothing answers.
pub(super) async fn alive_nodes(subject: &Subject<'_>) -> Option<Vec<Node>> {
    let port = subject.ports(&Key::head())?.dashboard;
    // A connection that is refused at once costs nothing; the client's own retries would cost seconds.
    tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let nodes = subject.client.nodes().await.ok()?;
    Some(nodes.into_iter().filter(|node| node.alive).collect())
}

/// Says whether what Ray lists is this node of ours. The head says so itself; workers by their custom resource.
pub(super) fn is_node(found: &Node, key: &Key) -> bool {
    found.resources.contains_key(&resource_of(key))
}

async fn died(subject: &Subject<'_>, key: &Key) -> Error {
    let how = match subject.world.agent().ask(&crate::agent::Request::Status).await {
        Ok(Some(answer)) => answer.nodes.into_iter().find(|node| node.key == *key).and_then(|node| node.ended),
        _ => None,
    };
    let how = how.unwrap_or_else(|| "it does not run any more".to_owned());
    Error::new(ErrorKind::Ray, format!("start {}", key.display_name()))
        .because(format!("its process ended: {how}"))
        .because(last_lines(subject, Some(&key.display_name())).await)
        .hint(format!("gpucl logs {} -c {}   # all that it printed", key.display_name(), subject.scope.cluster))
}

/// The end of a node's log.
async fn last_lines(subject: &Subject<'_>, name: Option<&String>) -> String {
    let key = subject.nodes.iter().find(|node| Some(&node.key.display_name()) == name);
    let Some(node) = key else { return "its log is empty".to_owned() };
    let Some(id) = subject.known.items.get(&node.host).and_then(|item| item.id.clone()) else {
        return "its host is not known".to_owned();
    };
    let Ok((_, layout)) = subject.world.host(&node.host, &id).await else { return "its host is gone".to_owned() };
    let text = read_tail(&layout.log(&node.key), RECORD_LIMIT).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let tail = &lines[lines.len().saturating_sub(LAST_LINES)..];
    if tail.is_empty() { "its log is empty".to_owned() } else { format!("the end of its log:\n{}", tail.join("\n")) }
}
