//! Every node as Ray lists it against what was promised; all checks, and their sum.

use super::subject::Subject;
use super::wait::{alive_nodes, is_node};
use super::{ports, probe, token};
use crate::cluster::processes::world::is_running;
use crate::error::{Error, ErrorKind, Result};
use crate::event::CheckOutcome;
use crate::plan::{NodeRole, NodeSpec};
use crate::ray::Node;
use crate::util::human;

/// Runs all checks, as many at a time as can be; hands back how many passed.
///
/// # Errors
/// [`ErrorKind::NotReady`] when one did not pass; every check has told what it saw by then.
pub(crate) async fn run(subject: &Subject<'_>) -> Result<usize> {
    let (nodes, proof, tokens) = tokio::join!(nodes(subject), probe::run(subject), token::run(subject));
    let open = ports::run(subject);
    let outcomes: Vec<CheckOutcome> = nodes.into_iter().chain(proof).chain(tokens).chain(open).collect();
    let failed = outcomes.iter().filter(|outcome| **outcome == CheckOutcome::Failed).count();
    if failed == 0 {
        return Ok(outcomes.iter().filter(|outcome| **outcome == CheckOutcome::Passed).count());
    }
    Err(Error::new(ErrorKind::NotReady, format!("verify the cluster {}", subject.scope.cluster))
        .because(format!("{} of {} failed", human::count(failed, "check"), outcomes.len()))
        .hint(format!("gpucl logs -c {0}; gpucl verify -c {0}   # to check again", subject.scope.cluster)))
}

/// Every node runs, and Ray calls it alive with all that was promised.
async fn nodes(subject: &Subject<'_>) -> Vec<CheckOutcome> {
    let alive = alive_nodes(subject).await;
    let mut outcomes = Vec::new();
    for node in subject.nodes {
        let target = node.key.display_name();
        let found: Vec<&Node> = alive.iter().flatten().filter(|found| is_node(found, &node.key)).collect();
        let (outcome, saw) = if !is_running(&subject.known, &node.key) {
            (CheckOutcome::Failed, "its process does not run".to_owned())
        } else {
            match found.as_slice() {
                [] if alive.is_none() => (CheckOutcome::Failed, "the head does not answer".to_owned()),
                [] => (CheckOutcome::Failed, "not in Ray's list".to_owned()),
                // A node that was killed stays in the list until Ray misses its heartbeats: the newest is it.
                several => match several.iter().max_by_key(|found| found.start_time) {
                    Some(newest) => compare(node, newest),
                    None => (CheckOutcome::Failed, "not in Ray's list".to_owned()),
                },
            }
        };
        outcomes.push(subject.tell("node alive", &target, outcome, saw));
        if node.role == NodeRole::Worker && node.gpus > 0 && node.first_gpu.is_none() {
            let saw = format!("{} declared, not seen", human::count(node.gpus as usize, "logical GPU"));
            outcomes.push(subject.tell("gpu", &target, CheckOutcome::Declared, saw));
        }
    }
    outcomes
}

/// What Ray lists against what was promised.
fn compare(node: &NodeSpec, found: &Node) -> (CheckOutcome, String) {
    let has = |name: &str| found.resources.get(name).copied().unwrap_or(0.0);
    let saw = format!(
        "{} with {} CPU, {} GPU, {} for tasks, {} for objects",
        found.state,
        has("CPU"),
        has("GPU"),
        human::bytes(has("memory") as u64),
        human::bytes(has("object_store_memory") as u64)
    );
    let mut wrong = Vec::new();
    let mut promised = vec![
        ("CPU".to_owned(), f64::from(node.cpus)),
        ("GPU".to_owned(), f64::from(node.gpus)),
        ("memory".to_owned(), node.memory as f64),
        ("object_store_memory".to_owned(), node.object_store_memory as f64),
    ];
    promised.extend(node.resources.iter().map(|(name, amount)| (name.clone(), *amount)));
    for (name, amount) in promised {
        // Ray counts in ten-thousandths.
        if (has(&name) - amount).abs() > 1e-3 {
            wrong.push(format!("promised {amount} {name}, Ray has {}", has(&name)));
        }
    }
    for (name, value) in &node.labels {
        if found.labels.get(name) != Some(value) {
            wrong.push(format!("the label {name}={value} is missing"));
        }
    }
    if wrong.is_empty() { (CheckOutcome::Passed, saw) } else { (CheckOutcome::Failed, wrong.join("; ")) }
}
