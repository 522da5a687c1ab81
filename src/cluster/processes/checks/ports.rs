//! What the cluster's processes listen on: the loopback only, else what it is and what protects it.

use super::subject::Subject;
use crate::event::CheckOutcome;
use crate::runtime::native::pids;
use crate::util::ports::{Listener, listeners};

/// Looks at every listening socket of every process that carries our tag.
pub(super) fn run(subject: &Subject<'_>) -> Vec<CheckOutcome> {
    let found = listeners(&pids(&subject.scope));
    let (closed, open): (Vec<&Listener>, Vec<&Listener>) = found.iter().partition(|listener| listener.is_loopback());
    let mut outcomes = Vec::new();
    for listener in &open {
        // Ray itself opens none: what a task opens is the task's, and nothing of ours stands in front of it.
        let block = subject.nodes.iter().any(|node| {
            subject.ports(&node.key).is_some_and(|ports| (ports.base..ports.base + 100).contains(&listener.port))
        });
        let (outcome, saw) = if block {
            (CheckOutcome::Failed, format!("Ray listens on {}: it is open to the network", listener.address))
        } else {
            (
                CheckOutcome::Noted,
                format!("a task (process {}) listens on {}; only the task protects it", listener.pid, listener.address),
            )
        };
        outcomes.push(subject.tell("port", &listener.port.to_string(), outcome, saw));
    }
    let saw = format!("{} listening ports, all on the loopback", closed.len());
    if open.is_empty() && !closed.is_empty() {
        outcomes.push(subject.tell("closed ports", "all nodes", CheckOutcome::Passed, saw));
    } else if closed.is_empty() {
        outcomes.push(subject.tell("closed ports", "all nodes", CheckOutcome::Failed, "no listening port was seen"));
    }
    outcomes
}
