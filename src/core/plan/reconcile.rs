//! The pure comparison: desired, known, observed -> records for the journal, and a plan.

mod hosts;

use std::collections::BTreeSet;

use hosts::Releases;

use super::{Action, Desired, HostAction, Observed, Plan, ResourceAction};
use crate::name::Key;
use crate::provider::{ObservedResource, ResourceState};
use crate::state::{ClusterState, ItemKind};

/// The goal of a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum Goal {
    /// Exactly this exists.
    Up(Desired),
    /// No node runs; hosts stay.
    Stop,
    /// Nothing exists.
    Down,
    /// No resource with these keys exists at the provider; everything else stays as it is.
    GiveBack(BTreeSet<Key>),
}

/// The result of a comparison.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The operations to run.
    pub plan: Plan,
    /// Items that exist but have no id in the journal, after a crash between the call and the record: key, kind, id
    /// and digest.
    pub adopted: Vec<(Key, ItemKind, String, String)>,
    /// Items in the journal that no longer exist.
    pub forgotten: Vec<Key>,
}

/// Compares what is desired, known and observed. Decides everything, changes nothing.
pub fn reconcile(goal: &Goal, known: &ClusterState, observed: &Observed) -> Outcome {
    let nothing = Desired::default();
    let desired = match goal {
        Goal::Up(desired) => desired,
        Goal::Stop | Goal::Down | Goal::GiveBack(_) => &nothing,
    };
    let mut work =
        Work { known, observed, outcome: Outcome::default(), renewed: BTreeSet::new(), firewalls: BTreeSet::new() };
    if let Goal::GiveBack(keys) = goal {
        work.give_back(keys);
        return work.outcome;
    }
    let why_not = match goal {
        Goal::Up(_) => "not in the spec",
        Goal::Stop => "the cluster is stopped",
        Goal::Down | Goal::GiveBack(_) => "the cluster is taken down",
    };
    work.stop_projects(goal, desired, why_not);
    if *goal != Goal::Stop {
        work.resources(desired, why_not);
        work.prepare(desired);
        work.fill(desired);
        work.firewalls(desired);
    }
    work.deploy(desired);
    work.forget(goal);
    work.outcome
}

struct Work<'a> {
    known: &'a ClusterState,
    observed: &'a Observed,
    outcome: Outcome,
    /// The keys of resources that are acquired or replaced.
    renewed: BTreeSet<Key>,
    /// The hosts whose firewall is set.
    firewalls: BTreeSet<Key>,
}

impl Work<'_> {
    /// Whether the host's resources exist, are usable and match the request; without a host, whether all do.
    fn host_stays(&self, desired: &Desired, host: Option<&Key>) -> bool {
        desired
            .resources
            .iter()
            .filter(|request| host.is_none_or(|host| request.key == *host))
            .all(|request| self.keeps(request).is_ok())
    }

    /// The resource that stays as it is, or the reason why none does; `Err(None)` if there is none.
    fn keeps(&self, request: &crate::provider::ResourceRequest) -> Result<&ObservedResource, Option<String>> {
        let is_it = |found: &&ObservedResource| {
            found.key == request.key && request.adopted.as_ref().is_none_or(|id| found.adopted && found.id == *id)
        };
        let instances: Vec<_> = self.observed.resources.iter().filter(is_it).collect();
        let known = self.known.items.get(&request.key);
        match instances.as_slice() {
            [] => Err(None),
            [one] if one.state == ResourceState::Unusable => Err(Some(one.detail.clone())),
            // What can be changed in place is never replaced because of a change.
            [one] if one.adopted || one.digest.is_some() => Ok(one),
            [one] => match known {
                Some(known) if known.digest != request.digest() => Err(Some("the spec has changed for it".to_owned())),
                _ => Ok(one),
            },
            several => {
                let ours = known.and_then(|known| known.id.as_ref());
                match several.iter().find(|found| Some(&found.id) == ours && found.is_usable()) {
                    Some(ours) => Ok(ours),
                    None => several
                        .iter()
                        .find(|found| found.is_usable())
                        .copied()
                        .ok_or(Some("none of them can be used".to_owned())),
                }
            }
        }
    }

    fn resources(&mut self, desired: &Desired, why_not: &str) {
        let before_release = self.operations(|action| matches!(action, Action::Host(HostAction::Clean { .. })));
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
                Some(Ok(_)) => "it exists more than once".to_owned(),
                Some(Err(why)) => why.unwrap_or_else(|| "it cannot be used".to_owned()),
            };
            releases.add(&mut self.outcome.plan, found, cause);
        }
        for request in &desired.resources {
            let why = match self.keeps(request) {
                Ok(found) if found.digest.as_ref().is_some_and(|digest| *digest != request.digest()) => {
                    let action = ResourceAction::Update { request: request.clone(), id: found.id.clone() };
                    let after = request.needs.iter().flat_map(|need| self.of_key(need)).collect();
                    self.outcome.plan.add(&request.key, action, "the spec has changed for it", sorted(after));
                    continue;
                }
                Ok(found) if found.is_usable() => continue,
                Ok(found) => {
                    let action = ResourceAction::Await { request: request.clone(), id: found.id.clone() };
                    let why = if found.detail.is_empty() { "it is being created" } else { &found.detail }.to_owned();
                    let after = request.needs.iter().flat_map(|need| self.of_key(need)).collect();
                    self.outcome.plan.add(&request.key, action, why, sorted(after));
                    continue;
                }
                // An adopted resource is created by someone else: nothing can be done here.
                Err(_) if request.adopted.is_some() => continue,
                Err(Some(_)) => "it is replaced",
                Err(None) if self.known.items.contains_key(&request.key) => "it is gone",
                Err(None) => "there is none yet",
            };
            let mut after: Vec<usize> = self.of_key(&request.key);
            for need in &request.needs {
                after.extend(self.of_key(need));
            }
            let action = ResourceAction::Acquire { request: request.clone() };
            self.outcome.plan.add(&request.key, action, why, sorted(after));
            self.renewed.insert(request.key.clone());
        }
    }

    fn prepare(&mut self, desired: &Desired) {
        for preparation in &desired.preparations {
            let cause = match self.observed.prepared.get(&preparation.host) {
                _ if self.renewed.contains(&preparation.host) => "it is new",
                Some(digest) if *digest == preparation.digest => continue,
                _ if self.has_other_setup(desired, &preparation.host) => "its setup has changed",
                Some(_) => "its preparation has changed",
                None => "it is not prepared yet",
            };
            let action = HostAction::Prepare { digest: preparation.digest.clone() };
            let mut after = self.of_key(&preparation.host);
            // Each host is prepared as soon as it exists. It waits for the others only if its preparation includes the
            // firewall, which needs their addresses, or if it is reached through another host.
            let others = desired.projects.iter().map(|project| &project.host).filter(|host| **host != preparation.host);
            for other in others {
                if (desired.firewalls.is_empty() && !desired.independent_hosts)
                    || preparation.behind.as_ref() == Some(other)
                {
                    after.extend(self.acquiring(other));
                }
            }
            self.outcome.plan.add(&preparation.host, action, cause, sorted(after));
        }
    }

    /// Forgets items of the journal that no longer exist.
    fn forget(&mut self, goal: &Goal) {
        for (key, item) in &self.known.items {
            let exists = match item.kind {
                ItemKind::Resource(_) => self.observed.resources.iter().any(|found| found.key == *key),
                ItemKind::Project => self.observed.projects.iter().any(|found| found.key == *key),
            };
            // An item that is about to be recreated keeps its notes.
            let wanted = !self.of_key(key).is_empty();
            let stays = *goal == Goal::Stop && matches!(item.kind, ItemKind::Resource(_));
            if !exists && !wanted && !stays {
                self.outcome.forgotten.push(key.clone());
            }
        }
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

fn sorted(mut numbers: Vec<usize>) -> Vec<usize> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
