//! The pure comparison: desired, known, observed -> what to write down, and what to do.

mod hosts;

use std::collections::BTreeSet;

use hosts::Releases;

use super::{Action, Desired, Health, Observed, ObservedItem, Plan};
use crate::name::Key;
use crate::provider::ObservedResource;
use crate::state::{ClusterState, ItemKind};

/// What is wanted.
#[derive(Debug, Clone, PartialEq)]
pub enum Goal {
    /// That this exists and nothing else.
    Up(Desired),
    /// That no node runs; hosts stay.
    Stop,
    /// That nothing exists.
    Down,
    /// That nothing of these keys exists at the provider; all else stays as it is.
    GiveBack(BTreeSet<Key>),
}

/// What follows from a comparison.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// What is to be done.
    pub plan: Plan,
    /// What exists though the journal does not know its id: a crash came between the two.
    pub adopted: Vec<(Key, ItemKind, String, String)>,
    /// What the journal knows and is gone.
    pub forgotten: Vec<Key>,
}

/// Compares; decides everything, does nothing.
pub fn reconcile(goal: &Goal, known: &ClusterState, observed: &Observed) -> Outcome {
    let nothing = Desired::default();
    let desired = match goal {
        Goal::Up(desired) => desired,
        Goal::Stop | Goal::Down | Goal::GiveBack(_) => &nothing,
    };
    let mut work = Work {
        known,
        observed,
        outcome: Outcome::default(),
        stopped: Vec::new(),
        renewed: BTreeSet::new(),
        guarded: BTreeSet::new(),
        ready: Vec::new(),
    };
    if let Goal::GiveBack(keys) = goal {
        work.give_back(keys);
        return work.outcome;
    }
    let why_not = match goal {
        Goal::Up(_) => "not in the spec",
        Goal::Stop => "the cluster is stopped",
        Goal::Down | Goal::GiveBack(_) => "the cluster is taken down",
    };
    work.stop_nodes(desired, why_not);
    let agent_stopped = work.stop_agent(desired.agent.as_deref(), why_not);
    work.stop_projects(goal, desired, why_not);
    if *goal != Goal::Stop {
        work.resources(desired, why_not);
        work.prepare(desired);
        work.guard(desired);
    }
    if let Some(digest) = &desired.agent {
        work.start_agent(digest, agent_stopped);
    }
    work.start_nodes(desired);
    work.deploy(desired);
    work.forget(goal);
    work.outcome
}

struct Work<'a> {
    known: &'a ClusterState,
    observed: &'a Observed,
    outcome: Outcome,
    /// The numbers of the operations that end processes.
    stopped: Vec<usize>,
    /// The hosts, by their key, that are made anew.
    renewed: BTreeSet<Key>,
    /// The hosts of which the ports are opened to the others anew.
    guarded: BTreeSet<Key>,
    /// Operations that must be done before nodes start.
    ready: Vec<usize>,
}

impl Work<'_> {
    /// Ends nodes that are not wanted, not as they are wanted, broken, or there twice.
    fn stop_nodes(&mut self, desired: &Desired, why_not: &str) {
        let head_digest = desired.nodes.first().map(super::NodeSpec::digest);
        let heads: Vec<&ObservedItem> = self.observed.nodes.iter().filter(|node| node.key == Key::head()).collect();
        let head_stays = heads.len() == 1
            && heads[0].health == Health::Good
            && heads[0].digest == head_digest
            && self.host_stays(desired, desired.nodes.first().map(|node| &node.host));
        for key in keys(&self.observed.nodes) {
            let instances: Vec<&ObservedItem> = self.observed.nodes.iter().filter(|node| node.key == key).collect();
            let wanted = desired.nodes.iter().find(|node| node.key == key);
            let cause = match (wanted, instances.as_slice()) {
                (None, _) => Some(why_not.to_owned()),
                (Some(_), [one]) if matches!(one.health, Health::Broken(_)) => match &one.health {
                    Health::Broken(why) => Some(why.clone()),
                    Health::Good => None,
                },
                (Some(wanted), [one]) => {
                    if !self.host_stays(desired, Some(&wanted.host)) {
                        Some("its host is made anew".to_owned())
                    } else if one.digest.as_deref() != Some(wanted.digest().as_str()) {
                        Some("the spec has changed for it".to_owned())
                    } else if key != Key::head() && !head_stays {
                        Some("its head is started anew".to_owned())
                    } else {
                        self.adopt(one, ItemKind::Node);
                        None
                    }
                }
                (Some(_), several) => Some(format!("it runs {} times", several.len())),
            };
            if let Some(cause) = cause {
                let id = self.outcome.plan.add(&key, Action::StopNode, cause, Vec::new());
                self.stopped.push(id);
            }
        }
    }

    /// The host is there, once, usable, and asked for as it was.
    fn host_stays(&self, desired: &Desired, host: Option<&Key>) -> bool {
        desired
            .resources
            .iter()
            .filter(|request| host.is_none_or(|host| request.key == *host))
            .all(|request| self.keeps(request).is_ok())
    }

    /// The one resource that stays as it is; else why it does not.
    fn keeps(&self, request: &crate::provider::ResourceRequest) -> Result<&ObservedResource, Option<String>> {
        let is_it = |found: &&ObservedResource| {
            found.key == request.key && request.adopted.as_ref().is_none_or(|id| found.adopted && found.id == *id)
        };
        let instances: Vec<_> = self.observed.resources.iter().filter(is_it).collect();
        let known = self.known.items.get(&request.key);
        match instances.as_slice() {
            [] => Err(None),
            [one] if !one.usable && !one.coming => Err(Some(one.detail.clone())),
            [one] if one.adopted => Ok(one),
            [one] => match known {
                Some(known) if known.digest != request.digest() => Err(Some("the spec has changed for it".to_owned())),
                _ => Ok(one),
            },
            several => {
                let ours = known.and_then(|known| known.id.as_ref());
                match several.iter().find(|found| Some(&found.id) == ours && found.usable) {
                    Some(ours) => Ok(ours),
                    None => several
                        .iter()
                        .find(|found| found.usable)
                        .copied()
                        .ok_or(Some("none of them can be used".to_owned())),
                }
            }
        }
    }

    fn stop_agent(&mut self, digest: Option<&str>, why_not: &str) -> Option<usize> {
        let key = Key::agent();
        let cause = match (digest, self.observed.agents.as_slice()) {
            (_, []) => return None,
            (None, _) => why_not.to_owned(),
            (Some(digest), [one]) => match &one.health {
                Health::Broken(why) => why.clone(),
                Health::Good if one.digest.as_deref() != Some(digest) => "gpucl itself has changed".to_owned(),
                Health::Good => {
                    let one = one.clone();
                    self.adopt(&one, ItemKind::Agent);
                    return None;
                }
            },
            (Some(_), several) => format!("it runs {} times", several.len()),
        };
        // The agent restarts what ends by itself: it goes after the nodes that are to end, and they are told to it.
        let id = self.outcome.plan.add(&key, Action::StopAgent, cause, self.stopped.clone());
        Some(id)
    }

    fn resources(&mut self, desired: &Desired, why_not: &str) {
        let mut before_release = self.stopped.clone();
        before_release.extend(self.operations(|action| matches!(action, Action::StopAgent | Action::Clean { .. })));
        for found in self.observed.resources.iter().filter(|found| found.adopted) {
            let request = desired.resources.iter().find(|request| request.key == found.key);
            let digest = request.map(crate::provider::ResourceRequest::digest).unwrap_or_default();
            self.adopt_as(&found.key, ItemKind::Resource(found.kind.0.clone()), &found.id, &digest);
        }
        let mut releases = Releases { before: before_release, together: None };
        for found in self.observed.resources.iter().rev().filter(|found| !found.adopted) {
            let kept =
                desired.resources.iter().find(|request| request.key == found.key).map(|request| self.keeps(request));
            let cause = match kept {
                None => why_not.to_owned(),
                Some(Ok(kept)) if kept.id == found.id => {
                    let request_digest = desired
                        .resources
                        .iter()
                        .find(|request| request.key == found.key)
                        .map(crate::provider::ResourceRequest::digest)
                        .unwrap_or_default();
                    let kind = ItemKind::Resource(found.kind.0.clone());
                    self.adopt_as(&found.key, kind, &found.id, &request_digest);
                    continue;
                }
                Some(Ok(_)) => "there are several of it".to_owned(),
                Some(Err(why)) => why.unwrap_or_else(|| "it cannot be used".to_owned()),
            };
            releases.add(&mut self.outcome.plan, found, cause);
        }
        for request in &desired.resources {
            let why = match self.keeps(request) {
                Ok(found) if found.usable => continue,
                Ok(found) => {
                    let action = Action::Await { request: request.clone(), id: found.id.clone() };
                    let why = if found.detail.is_empty() { "it is being made" } else { &found.detail }.to_owned();
                    let after = request.needs.iter().flat_map(|need| self.of_key(need)).collect();
                    let id = self.outcome.plan.add(&request.key, action, why, sorted(after));
                    self.ready.push(id);
                    continue;
                }
                // Somebody else's to make: there is nothing that could be done here.
                Err(_) if request.adopted.is_some() => continue,
                Err(Some(_)) => "it is made anew",
                Err(None) if self.known.items.contains_key(&request.key) => "it is gone",
                Err(None) => "there is none yet",
            };
            let mut after: Vec<usize> = self.of_key(&request.key);
            for need in &request.needs {
                after.extend(self.of_key(need));
            }
            let action = Action::Acquire { request: request.clone() };
            let id = self.outcome.plan.add(&request.key, action, why, sorted(after));
            self.renewed.insert(request.key.clone());
            self.ready.push(id);
        }
    }

    fn prepare(&mut self, desired: &Desired) {
        for preparation in &desired.preparations {
            let cause = match self.observed.prepared.get(&preparation.host) {
                _ if self.renewed.contains(&preparation.host) => "it is new",
                Some(digest) if *digest == preparation.digest => continue,
                Some(_) => "what it must hold has changed",
                None => "it is not prepared yet",
            };
            let action = Action::Prepare { digest: preparation.digest.clone() };
            let mut after = self.of_key(&preparation.host);
            // Each host goes its own way as it comes. Only where its preparation holds what it lets in, it must know where the others
            // are; and one behind another is reached through that.
            let others = desired.projects.iter().map(|project| &project.host).filter(|host| **host != preparation.host);
            for other in others {
                if (desired.guards.is_empty() && !desired.apart) || preparation.behind.as_ref() == Some(other) {
                    after.extend(self.acquiring(other));
                }
            }
            after.extend(&self.stopped);
            let id = self.outcome.plan.add(&preparation.host, action, cause, sorted(after));
            self.ready.push(id);
        }
    }

    fn start_agent(&mut self, digest: &str, stopped: Option<usize>) {
        let runs = self.observed.agents.len() == 1
            && self.observed.agents[0].health == Health::Good
            && self.observed.agents[0].digest.as_deref() == Some(digest);
        if runs {
            return;
        }
        let cause = if stopped.is_some() {
            "it is started anew"
        } else if self.known.items.contains_key(&Key::agent()) {
            "it does not run any more"
        } else {
            "it does not run yet"
        };
        let id = self.outcome.plan.add(&Key::agent(), Action::StartAgent, cause, stopped.into_iter().collect());
        self.ready.push(id);
    }

    fn start_nodes(&mut self, desired: &Desired) {
        let mut head = None;
        for node in &desired.nodes {
            let stops = self.of_key(&node.key);
            let seen = self.observed.nodes.iter().any(|found| found.key == node.key);
            let cause = if !stops.is_empty() {
                "it is started anew"
            } else if seen {
                continue;
            } else if self.known.items.contains_key(&node.key) {
                "it does not run any more"
            } else {
                "it does not run yet"
            };
            let mut after = self.ready.clone();
            after.extend(stops);
            // A worker learns from the head's start where the head is; Ray's ports free up when old workers are gone.
            after.extend(head);
            if head.is_none() && node.key == Key::head() {
                after.extend(&self.stopped);
            }
            let action = Action::StartNode { node: Box::new(node.clone()) };
            let id = self.outcome.plan.add(&node.key, action, cause, sorted(after));
            if node.key == Key::head() {
                head = Some(id);
            }
        }
    }

    /// What the journal knows and nobody sees is gone.
    fn forget(&mut self, goal: &Goal) {
        for (key, item) in &self.known.items {
            let seen = match item.kind {
                ItemKind::Resource(_) => self.observed.resources.iter().any(|found| found.key == *key),
                ItemKind::Agent => !self.observed.agents.is_empty(),
                ItemKind::Node => self.observed.nodes.iter().any(|found| found.key == *key),
                ItemKind::Project => self.observed.projects.iter().any(|found| found.key == *key),
            };
            // What is about to be made again keeps what was remembered of it.
            let wanted = !self.of_key(key).is_empty();
            let stays = *goal == Goal::Stop && matches!(item.kind, ItemKind::Resource(_));
            if !seen && !wanted && !stays {
                self.outcome.forgotten.push(key.clone());
            }
        }
    }

    fn adopt(&mut self, found: &ObservedItem, kind: ItemKind) {
        self.adopt_as(&found.key, kind, &found.id, found.digest.as_deref().unwrap_or_default());
    }

    fn adopt_as(&mut self, key: &Key, kind: ItemKind, id: &str, digest: &str) {
        let known = self.known.items.get(key).and_then(|item| item.id.as_deref());
        if known != Some(id) {
            self.outcome.adopted.push((key.clone(), kind, id.to_owned(), digest.to_owned()));
        }
    }

    fn of_key(&self, key: &Key) -> Vec<usize> {
        self.outcome
            .plan
            .operations
            .iter()
            .filter(|operation| operation.key == *key)
            .map(|operation| operation.id)
            .collect()
    }

    fn operations(&self, which: impl Fn(&Action) -> bool) -> Vec<usize> {
        self.outcome
            .plan
            .operations
            .iter()
            .filter(|operation| which(&operation.action))
            .map(|operation| operation.id)
            .collect()
    }
}

fn keys(items: &[ObservedItem]) -> BTreeSet<Key> {
    items.iter().map(|item| item.key.clone()).collect()
}

fn sorted(mut numbers: Vec<usize>) -> Vec<usize> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
