//! Hosts and the projects on them: who is opened to whom, what is brought up where, and what is given back.

use std::collections::BTreeSet;

use super::{Goal, Work, sorted};
use crate::name::Key;
use crate::plan::{
    Action, Change, Desired, Health, NodeChange, NodeRequest, ObservedNode, ObservedProject, Plan, ProjectRequest,
};
use crate::provider::ObservedResource;
use crate::state::ItemKind;

impl Work<'_> {
    /// Ends projects; cleans hosts that are not to hold any.
    pub(super) fn stop_projects(&mut self, goal: &Goal, desired: &Desired, why_not: &str) {
        for found in &self.observed.projects {
            let host = found.host.clone();
            if *goal == Goal::Stop {
                if found.running {
                    self.outcome.plan.add(&found.key, Action::StopProject { host }, why_not, Vec::new());
                }
            } else if !desired.projects.iter().any(|wanted| wanted.key == found.key) {
                self.outcome.plan.add(&found.key, Action::Clean { host }, why_not, Vec::new());
            } else if !self.host_stays(desired, Some(&found.host)) {
                // The host itself may outlive its place in the cluster: nothing of ours stays on it.
                let why = "its host is made anew";
                self.outcome.plan.add(&found.key, Action::Clean { host }, why, Vec::new());
            }
        }
    }

    /// Opens hosts to each other once all of them are there, and the head's can be deployed on: what is opened is closed again when the
    /// host's deployment does not follow, and a worker cannot do without its head.
    pub(super) fn firewalls(&mut self, desired: &Desired) {
        let is_new = |host: &Key| self.renewed.contains(host);
        let some_are_new = desired.firewalls.iter().any(|firewall| is_new(&firewall.host));
        let of_head: Vec<usize> = desired.firewalls.first().map(|head| self.of_key(&head.host)).unwrap_or_default();
        for firewall in &desired.firewalls {
            let cause = match self.observed.firewalls.get(&firewall.host) {
                _ if self.renewed.contains(&firewall.host) => "it is new",
                _ if some_are_new => "another host is new",
                Some(digest) if *digest == firewall.digest => continue,
                Some(_) => "what it lets in has changed",
                None => "its ports are not open to the others alone yet",
            };
            let mut after = self.of_key(&firewall.host);
            for other in &desired.firewalls {
                after.extend(self.acquiring(&other.host));
            }
            after.extend(&of_head);
            let action = Action::SetFirewall { digest: firewall.digest.clone() };
            self.outcome.plan.add(&firewall.host, action, cause, sorted(after));
            self.firewalls.insert(firewall.host.clone());
        }
    }

    /// Brings up every project that is not there as it is wanted. Compose changes in place: nothing is ended first.
    pub(super) fn deploy(&mut self, desired: &Desired) {
        for wanted in &desired.projects {
            let found = self.observed.projects.iter().find(|found| found.key == wanted.key);
            let cause = match found {
                None => "it does not run yet".to_owned(),
                Some(_) if self.renewed.contains(&wanted.host) => "its host is made anew".to_owned(),
                // What was opened is closed again unless the stage that follows comes by a new connection.
                Some(_) if self.firewalls.contains(&wanted.host) => "what its host lets in is set anew".to_owned(),
                Some(found) if found.digest.is_none() => "it was not brought up to its end".to_owned(),
                Some(found) if found.digest != wanted.digest => "the spec has changed for it".to_owned(),
                Some(found) => match &found.health {
                    Health::Broken(why) => why.clone(),
                    Health::Good => {
                        let digest = found.digest.clone().unwrap_or_default();
                        self.adopt_as(&wanted.key, ItemKind::Project, &found.id, &digest);
                        continue;
                    }
                },
            };
            let mut after = self.of_key(&wanted.host);
            after.extend(self.of_key(&wanted.key));
            if desired.apart {
                // Which nodes there are, and where the head will be, is known once all of them are there.
                for other in &desired.projects {
                    after.extend(self.acquiring(&other.host));
                }
            }
            // What needs a peer finds it when it is there: hosts go side by side.
            after.sort_unstable();
            after.dedup();
            let found = found.filter(|_| !self.renewed.contains(&wanted.host));
            let nodes = changes(wanted, found);
            let action = Action::Deploy { host: wanted.host.clone(), nodes };
            self.outcome.plan.add(&wanted.key, action, cause, after);
        }
    }

    /// Releases what is there of these keys; what is not there is forgotten.
    pub(super) fn give_back(&mut self, keys: &BTreeSet<Key>) {
        let mut releases = Releases::default();
        for found in self.observed.resources.iter().rev().filter(|found| !found.adopted && keys.contains(&found.key)) {
            releases.add(&mut self.outcome.plan, found, "not all of it can be had".to_owned());
        }
        let is_seen = |key: &Key| self.observed.resources.iter().any(|found| found.key == *key);
        let gone = keys.iter().filter(|key| self.known.items.contains_key(*key) && !is_seen(key)).cloned();
        self.outcome.forgotten.extend(gone);
    }

    /// The operations that make a host be there.
    pub(super) fn acquiring(&self, host: &Key) -> Vec<usize> {
        let makes = |action: &Action| matches!(action, Action::Acquire { .. } | Action::Await { .. });
        let operations = self.outcome.plan.operations.iter();
        operations.filter(|one| one.key == *host && makes(&one.action)).map(|one| one.id).collect()
    }
}

/// What a deployment does to each node: it keeps those that run as they should, and disturbs no other for one that changes.
fn changes(wanted: &ProjectRequest, found: Option<&ObservedProject>) -> Vec<NodeChange> {
    let seen = |key: &Key| found.and_then(|found| found.nodes.iter().find(|node| node.key == *key));
    let of = |wanted: &NodeRequest| match seen(&wanted.key) {
        None => (Change::Start, "it does not run yet"),
        Some(node) if !node.running => (Change::Start, "it does not run any more"),
        Some(ObservedNode { digest: Some(has), .. }) if wanted.digest.as_ref().is_some_and(|digest| digest != has) => {
            (Change::Restart, "the spec has changed for it")
        }
        Some(_) => (Change::Keep, "it is as it should be"),
    };
    let is_head = |node: &NodeRequest| node.key == Key::head();
    let head_stays = wanted.nodes.iter().filter(|node| is_head(node)).all(|head| of(head).0 == Change::Keep);
    let mut changes = Vec::new();
    for node in &wanted.nodes {
        let (mut change, mut cause) = of(node);
        // One that carries no digest is its engine's, and joins the new head by itself.
        let follows_head = seen(&node.key).is_some_and(|node| node.digest.is_some());
        if change == Change::Keep && !head_stays && follows_head {
            (change, cause) = (Change::Restart, "its head is started anew");
        }
        changes.push(NodeChange { node: node.key.clone(), change, cause: cause.to_owned() });
    }
    for node in found.into_iter().flat_map(|found| &found.nodes).filter(|node| node.running) {
        if !wanted.nodes.iter().any(|wanted| wanted.key == node.key) {
            let (node, cause) = (node.key.clone(), "not in the spec".to_owned());
            changes.push(NodeChange { node, change: Change::Stop, cause });
        }
    }
    changes
}

/// Releases in an order in which they can be made.
#[derive(Default)]
pub(super) struct Releases<'a> {
    /// What must be done before the next of them.
    pub(super) before: Vec<usize>,
    /// Those that go side by side, by their kind.
    pub(super) together: Option<(&'a str, Vec<usize>)>,
}

impl<'a> Releases<'a> {
    /// Adds the next. What needs others goes before them: the reverse of the order in which it came; what is of one kind goes side
    /// by side.
    pub(super) fn add(&mut self, plan: &mut Plan, found: &'a ObservedResource, cause: String) {
        if let Some((_, ids)) = self.together.take_if(|(kind, _)| *kind != found.kind.0) {
            self.before.extend(ids);
        }
        let action = Action::Release { resource: found.clone() };
        let id = plan.add(&found.key, action, cause, self.before.clone());
        self.together.get_or_insert_with(|| (&found.kind.0, Vec::new())).1.push(id);
    }
}
