//! How far the training of a drill is, from its log and from what Ray says of its nodes. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;

use crate::ray::{JobStatus, Node};

/// What the training says, in a line of its log.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Said {
    /// It begins, or begins again from a checkpoint; 0 is none.
    Started {
        /// Ray's id of its node.
        node: String,
        /// The checkpoint.
        checkpoint: u32,
        /// The step of that checkpoint.
        step: u32,
    },
    /// A step is done.
    Step {
        /// Its number, from 1.
        step: u32,
    },
    /// A checkpoint is saved.
    Checkpoint {
        /// Its number, from 1.
        checkpoint: u32,
    },
}

/// What is known from the log of the job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// What the training has said, each thing once.
    pub(super) said: Vec<Said>,
    /// Ray Train says that its worker is lost.
    pub(super) is_missed: bool,
}

/// Reads a log. Ray puts the process in front of each line; it shows lines twice, and those of a killed node once more
/// when that is back.
pub(super) fn heard(log: &str) -> Heard {
    let mut seen = BTreeSet::new();
    let mut heard = Heard::default();
    for line in log.lines() {
        if let Some((_, said)) = line.split_once("drill: ") {
            if let (true, Ok(said)) = (seen.insert(said), serde_json::from_str(said.trim())) {
                heard.said.push(said);
            }
        } else if line.contains("TrainController") && line.contains("health check failed") {
            heard.is_missed = true;
        }
    }
    heard
}

/// The node where the training runs, once it has this checkpoint and so many steps more.
pub(super) fn due_to_be_killed(said: &[Said], checkpoint: u32, more: usize) -> Option<&str> {
    let saved = |one: &Said| matches!(one, Said::Checkpoint { checkpoint: number } if *number >= checkpoint);
    let at = said.iter().rposition(saved)?;
    let steps = said[at..].iter().filter(|one| matches!(one, Said::Step { .. })).count();
    (steps >= more).then(|| {
        said.iter().rev().find_map(|one| match one {
            Said::Started { node, .. } => Some(node.as_str()),
            _ => None,
        })
    })?
}

/// The node that was killed, and what is a node again in its place.
#[derive(Debug, Clone, Default)]
pub(super) struct Killed {
    /// Ray's id of it.
    id: String,
    /// Its name.
    name: String,
    /// Its group of a platform.
    group: Option<String>,
    /// Another node takes its place, with another name: Ray's ids of those that were there before.
    others: Option<BTreeSet<String>>,
}

impl Killed {
    /// The node of this id, of those before the fault; `replaced` if another one takes its place.
    pub(super) fn of(before: &[Node], id: &str, replaced: bool) -> Self {
        let node = before.iter().find(|node| node.node_id == id);
        Self {
            id: id.to_owned(),
            name: node.map(|node| node.name().to_owned()).unwrap_or_default(),
            group: node.and_then(group),
            others: replaced.then(|| before.iter().map(|node| node.node_id.clone()).collect()),
        }
    }

    /// Whether this node is it, or in its place.
    fn is_back_as(&self, node: &Node) -> bool {
        node.alive
            && node.node_id != self.id
            && match &self.others {
                None => node.name() == self.name,
                Some(others) => !node.is_head && !others.contains(&node.node_id) && group(node) == self.group,
            }
    }
}

/// The group of a node that a platform has started.
fn group(node: &Node) -> Option<String> {
    node.labels.get("ray.io/node-group").cloned()
}

/// What came of the fault; each time counts from the fault.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Measured {
    /// Ray lists the killed node as dead, or Ray Train misses its worker.
    pub(super) detected: Option<Duration>,
    /// The training begins again.
    pub(super) rescheduled: Option<Duration>,
    /// The node where it does.
    pub(super) node: Option<String>,
    /// It has done a step again.
    pub(super) resumed: Option<Duration>,
    /// The checkpoint that it went on from; 0 is none.
    pub(super) checkpoint: u32,
    /// The steps that it had to do again.
    pub(super) lost: u32,
    /// The job has ended.
    pub(super) ended: Option<(Duration, JobStatus)>,
    /// The killed worker is a node again.
    pub(super) back: Option<Duration>,
}

impl Measured {
    /// Takes in what is known at this time.
    pub(super) fn take(&mut self, at: Duration, killed: &Killed, nodes: &[Node], heard: &Heard, job: JobStatus) {
        let said = heard.said.as_slice();
        let lives = |node: &Node| node.alive && node.node_id == killed.id;
        if heard.is_missed || !nodes.iter().any(lives) {
            self.detected.get_or_insert(at);
        }
        if self.back.is_none() && nodes.iter().any(|node| killed.is_back_as(node)) {
            self.back = Some(at);
        }
        let starts = said.iter().enumerate().filter(|(_, one)| matches!(one, Said::Started { .. }));
        if let Some((begin, Said::Started { node, checkpoint, step })) = starts.skip(1).last() {
            self.detected.get_or_insert(at);
            self.rescheduled.get_or_insert(at);
            let there = nodes.iter().find(|there| there.node_id == *node);
            self.node = Some(there.map_or(node.as_str(), Node::name).to_owned());
            self.checkpoint = *checkpoint;
            let steps = |part: &[Said]| {
                part.iter()
                    .filter_map(|one| match one {
                        Said::Step { step } => Some(*step),
                        _ => None,
                    })
                    .max()
            };
            self.lost = steps(&said[..begin]).unwrap_or_default().saturating_sub(*step);
            if steps(&said[begin..]).is_some() {
                self.resumed.get_or_insert(at);
            }
        }
        if self.ended.is_none() && job.is_terminal() {
            self.ended = Some((at, job));
        }
    }

    /// Whether there is nothing more to wait for. A job that ended before it was resumed is not.
    pub(super) fn is_complete(&self) -> bool {
        self.detected.is_some() && self.back.is_some() && self.ended.is_some()
    }

    /// What is awaited, in the order in which it comes.
    pub(super) fn awaited(&self) -> &'static str {
        let all = [
            (self.detected.is_none(), "Ray to find out"),
            (self.rescheduled.is_none(), "the training to begin again"),
            (self.resumed.is_none(), "the training to go on"),
            (self.ended.is_none(), "the training to end"),
        ];
        all.into_iter().find(|(is_open, _)| *is_open).map_or("the worker to come back", |(_, what)| what)
    }
}

/// The names of nodes by Ray's ids.
pub(super) fn names(nodes: &[Node]) -> BTreeMap<String, String> {
    nodes.iter().map(|node| (node.node_id.clone(), node.name().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ray::NAME_LABEL;

    const LOG: &str = "\
Running entrypoint for job drill-1: python training.py drill-1
\u{1b}[36m(RayTrainWorker pid=1, ip=10.0.0.2)\u{1b}[0m drill: {\"event\": \"started\", \"node\": \"n1\", \"checkpoint\": 0, \"step\": 0, \"at\": 1.5}
(RayTrainWorker pid=1) drill: {\"event\": \"step\", \"step\": 1, \"at\": 2.5}
(RayTrainWorker pid=1) drill: {\"event\": \"checkpoint\", \"checkpoint\": 1, \"at\": 3.5}
(RayTrainWorker pid=1) drill: {\"event\": \"step\", \"step\": 2, \"at\": 4.5}
(RayTrainWorker pid=1) drill: {\"event\": \"step\", \"step\": 3, \"at\": 5.5}
(RayTrainWorker pid=1) drill: {\"event\": \"step\", \"st";
    const AGAIN: &str = "
(RayTrainWorker pid=2) drill: {\"event\": \"started\", \"node\": \"n2\", \"checkpoint\": 1, \"step\": 1, \"at\": 6.5}
(RayTrainWorker pid=2) drill: {\"event\": \"step\", \"step\": 2, \"at\": 7.5}
";

    fn node(id: &str, name: &str, alive: bool) -> Node {
        Node {
            node_id: id.to_owned(),
            address: String::new(),
            is_head: false,
            alive,
            state: String::new(),
            resources: BTreeMap::new(),
            labels: BTreeMap::from([(NAME_LABEL.to_owned(), name.to_owned())]),
            start_time: None,
        }
    }

    #[test]
    fn the_fault_comes_after_a_checkpoint_and_some_steps() {
        // Each line twice.
        let said = heard(&LOG.lines().flat_map(|line| [line, "\n", line, "\n"]).collect::<String>()).said;
        assert_eq!(said.len(), 5, "{said:?}");
        assert_eq!(due_to_be_killed(&said, 1, 2), Some("n1"));
        assert_eq!((due_to_be_killed(&said, 1, 3), due_to_be_killed(&said, 2, 0)), (None, None));
    }

    #[test]
    fn what_came_of_it_is_measured_when_it_is_first_seen() {
        let second = Duration::from_secs;
        let (before, after) = (heard(LOG), heard(&format!("{LOG}{AGAIN}{LOG}")));
        assert_eq!(after.said.len(), before.said.len() + 2);
        let mut measured = Measured::default();
        let (worker, other) = (node("n1", "worker-0", true), node("n2", "worker-1", true));
        let killed = Killed::of(&[worker.clone(), other.clone()], "n1", false);
        measured.take(second(1), &killed, &[worker, other.clone()], &before, JobStatus::Running);
        assert_eq!((measured.clone(), measured.awaited()), (Measured::default(), "Ray to find out"));
        let dead = node("n1", "worker-0", false);
        measured.take(second(2), &killed, &[dead.clone(), other.clone()], &after, JobStatus::Running);
        let returned = node("n3", "worker-0", true);
        measured.take(second(3), &killed, &[dead, other, returned], &after, JobStatus::Succeeded);
        let expected = Measured {
            detected: Some(second(2)),
            rescheduled: Some(second(2)),
            node: Some("worker-1".to_owned()),
            resumed: Some(second(2)),
            checkpoint: 1,
            lost: 2,
            ended: Some((second(3), JobStatus::Succeeded)),
            back: Some(second(3)),
        };
        assert_eq!(measured, expected);
        assert!(measured.is_complete());
    }

    #[test]
    fn another_pod_of_the_same_group_takes_the_place_of_one() {
        let of_group = |id: &str, group: &str| {
            let mut node = node(id, id, true);
            node.labels.insert("ray.io/node-group".to_owned(), group.to_owned());
            node
        };
        let before = [of_group("n1", "gpu"), of_group("n2", "gpu"), of_group("n3", "cpu")];
        let killed = Killed::of(&before, "n1", true);
        assert!(!before.iter().any(|node| killed.is_back_as(node)));
        assert!(!killed.is_back_as(&of_group("n4", "cpu")), "a node of another group");
        assert!(killed.is_back_as(&of_group("n5", "gpu")));
    }
}
