//! Hosts and their projects: firewalls, deployments and releases.

use std::collections::BTreeSet;

use super::{Goal, Work, sorted};
use crate::name::Key;
use crate::plan::{
    Action, Change, Desired, Health, HostAction, NodeChange, NodeRequest, ObservedNode, ObservedProject, Plan,
    ProjectRequest, ResourceAction,
};
use crate::provider::ObservedResource;
use crate::state::ItemKind;

impl Work<'_> {
    /// Stops projects, and cleans hosts that should not have one.
    pub(super) fn stop_projects(&mut self, goal: &Goal, desired: &Desired, why_not: &str) {
        for found in &self.observed.projects {
            let host = found.host.clone();
            if *goal == Goal::Stop {
                if found.running {
                    self.outcome.plan.add(&found.key, HostAction::StopProject { host }, why_not, Vec::new());
                }
            } else if !desired.projects.iter().any(|wanted| wanted.key == found.key) {
                self.outcome.plan.add(&found.key, HostAction::Clean { host }, why_not, Vec::new());
            } else if found.is_kept_data() {
                // The next deployment uses it.
            } else if !self.host_stays(desired, Some(&found.host)) {
                // The host itself may outlive its place in the cluster: nothing of ours may stay on it.
                let why = "its host is replaced";
                self.outcome.plan.add(&found.key, HostAction::Clean { host }, why, Vec::new());
            }
        }
    }

    /// Fills data sets once their host is prepared.
    pub(super) fn fill(&mut self, desired: &Desired) {
        for data in &desired.data {
            let cause = match self.observed.filled.get(&data.host) {
                _ if self.renewed.contains(&data.host) => "it is new",
                // A firewall that the preparation sets is reverted unless another stage of the host follows soon.
                Some(_) if !self.of_key(&data.host).is_empty() => "it is prepared again",
                Some(digest) if *digest == data.digest && !digest.is_empty() => continue,
                Some(digest) if digest.is_empty() => "some of its data is gone or fails its check",
                Some(_) => "its data has changed",
                None => "its data is not there yet",
            };
            let after = sorted(self.of_key(&data.host));
            self.outcome.plan.add(&data.host, HostAction::Fill { digest: data.digest.clone() }, cause, after);
        }
    }

    /// Sets firewalls once all hosts exist and the head's host is prepared: a firewall is reverted unless the host's
    /// deployment follows, and a worker's deployment needs its head.
    pub(super) fn firewalls(&mut self, desired: &Desired) {
        let is_new = |host: &Key| self.renewed.contains(host);
        let some_are_new = desired.firewalls.iter().any(|firewall| is_new(&firewall.host));
        let of_head: Vec<usize> = desired.firewalls.first().map(|head| self.of_key(&head.host)).unwrap_or_default();
        for firewall in &desired.firewalls {
            let cause = match self.observed.firewalls.get(&firewall.host) {
                _ if self.renewed.contains(&firewall.host) => "it is new",
                _ if some_are_new => "another host is new",
                Some(digest) if *digest == firewall.digest => continue,
                Some(_) => "its firewall rules have changed",
                None => "its firewall is not set yet",
            };
            let mut after = self.of_key(&firewall.host);
            for other in &desired.firewalls {
                after.extend(self.acquiring(&other.host));
            }
            after.extend(&of_head);
            after.extend(self.fills());
            let action = HostAction::SetFirewall { digest: firewall.digest.clone() };
            self.outcome.plan.add(&firewall.host, action, cause, sorted(after));
            self.firewalls.insert(firewall.host.clone());
        }
    }

    /// Deploys every project that is not as wanted. Compose changes projects in place: nothing is ended first.
    pub(super) fn deploy(&mut self, desired: &Desired) {
        for wanted in &desired.projects {
            let found = self.observed.projects.iter().find(|found| found.key == wanted.key && !found.is_kept_data());
            let cause = match found {
                None => "it does not run yet".to_owned(),
                Some(_) if self.renewed.contains(&wanted.host) => "its host is replaced".to_owned(),
                // A firewall is reverted unless a deployment follows over a new connection.
                Some(_) if self.firewalls.contains(&wanted.host) => "its host's firewall is set again".to_owned(),
                Some(_) if self.has_other_setup(desired, &wanted.host) => "its setup has changed".to_owned(),
                Some(found) if found.digest.is_none() => "it was not brought up completely".to_owned(),
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
            // If data cannot be had on one host, no node of another is started or stopped either.
            after.extend(self.fills());
            if desired.independent_hosts {
                // The list of nodes and the head's address are known once all hosts exist.
                for other in &desired.projects {
                    after.extend(self.acquiring(&other.host));
                }
            }
            if self.has_other_setup(desired, &wanted.host) {
                // A setup that fails on one host changes nothing that runs on any.
                for preparation in &desired.preparations {
                    after.extend(self.of_key(&preparation.host));
                }
            }
            // Nodes wait for their peers themselves, so that hosts are deployed concurrently.
            after.sort_unstable();
            after.dedup();
            let found = found.filter(|_| !self.renewed.contains(&wanted.host));
            let nodes =
                changes(wanted, found, &self.known.stopped_by_hand(), self.has_other_setup(desired, &wanted.host));
            let action = HostAction::Deploy { host: wanted.host.clone(), nodes };
            self.outcome.plan.add(&wanted.key, action, cause, after);
        }
    }

    /// Whether the nodes of a host were started with another `setup` than the spec's.
    pub(super) fn has_other_setup(&self, desired: &Desired, host: &Key) -> bool {
        let wanted = desired.preparations.iter().find(|preparation| preparation.host == *host);
        let project = desired.projects.iter().find(|project| project.host == *host);
        let (Some(wanted), Some(project)) = (wanted, project) else { return false };
        let runs = self.observed.projects.iter().any(|found| found.key == project.key && found.running);
        let started = self.known.project(&project.key).filter(|_| runs && !self.renewed.contains(host));
        started.is_some_and(|notes| notes.setup != wanted.setup)
    }

    /// Releases the existing resources of these keys, and forgets the others.
    pub(super) fn give_back(&mut self, keys: &BTreeSet<Key>) {
        let mut releases = Releases::default();
        for found in self.observed.resources.iter().rev().filter(|found| !found.adopted && keys.contains(&found.key)) {
            releases.add(&mut self.outcome.plan, found, "not everything is available".to_owned());
        }
        let is_seen = |key: &Key| self.observed.resources.iter().any(|found| found.key == *key);
        let gone = keys.iter().filter(|key| self.known.items.contains_key(*key) && !is_seen(key)).cloned();
        self.outcome.forgotten.extend(gone);
    }

    fn fills(&self) -> Vec<usize> {
        self.operations(|action| matches!(action, Action::Host(HostAction::Fill { .. })))
    }

    /// The operations that acquire or wait for a host.
    pub(super) fn acquiring(&self, host: &Key) -> Vec<usize> {
        let makes = |action: &Action| {
            matches!(action, Action::Resource(ResourceAction::Acquire { .. } | ResourceAction::Await { .. }))
        };
        let operations = self.outcome.plan.operations.iter();
        operations.filter(|one| one.key == *host && makes(&one.action)).map(|one| one.id).collect()
    }
}

/// The change of a deployment to each node: nodes that run as wanted are kept, and not disturbed by changes to others.
fn changes(
    wanted: &ProjectRequest,
    found: Option<&ObservedProject>,
    stopped_by_hand: &BTreeSet<Key>,
    has_other_setup: bool,
) -> Vec<NodeChange> {
    let observed = |key: &Key| found.and_then(|found| found.nodes.iter().find(|node| node.key == *key));
    let of = |wanted: &NodeRequest| match observed(&wanted.key) {
        None => (Change::Start, "it does not run yet"),
        Some(node) if !node.running && stopped_by_hand.contains(&node.key) => (Change::Start, "it was stopped by hand"),
        Some(node) if !node.running => (Change::Start, "it no longer runs"),
        Some(_) if has_other_setup => (Change::Restart, "its setup has changed"),
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
        // The guard outlives a head. A node without a digest belongs to the container engine, and rejoins a new head on its own.
        let follows_head = node.key.is_node() && observed(&node.key).is_some_and(|node| node.digest.is_some());
        if change == Change::Keep && !head_stays && follows_head {
            (change, cause) = (Change::Restart, "its head is restarted");
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

/// Orders the releases of resources.
#[derive(Default)]
pub(super) struct Releases<'a> {
    /// The operations that must be done before the next release.
    pub(super) before: Vec<usize>,
    /// The releases of one kind, which run concurrently.
    pub(super) together: Option<(&'a str, Vec<usize>)>,
}

impl<'a> Releases<'a> {
    /// Adds the next release. Resources come in reverse order of creation, so that dependents go first; those of one
    /// kind are released concurrently.
    pub(super) fn add(&mut self, plan: &mut Plan, found: &'a ObservedResource, cause: String) {
        if let Some((_, ids)) = self.together.take_if(|(kind, _)| *kind != found.kind.0) {
            self.before.extend(ids);
        }
        let action = ResourceAction::Release { resource: found.clone() };
        let id = plan.add(&found.key, action, cause, self.before.clone());
        self.together.get_or_insert_with(|| (&found.kind.0, Vec::new())).1.push(id);
    }
}
