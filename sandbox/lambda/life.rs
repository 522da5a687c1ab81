//! An instance, and the phases that it passes through as time goes by.

use std::time::Duration;

use jiff::Timestamp;

use super::super::clock::after;
use super::config::Outcome;
use super::records::{Host, Instance, Phase};
use super::state::State;

impl Instance {
    /// Whether the instance is billed.
    pub(super) fn is_billed(&self) -> bool {
        !matches!(self.phase, Phase::Terminated { .. } | Phase::Preempted { .. })
    }

    /// Whether the instance uses its file systems and rulesets.
    pub(super) fn holds(&self) -> bool {
        !matches!(self.phase, Phase::Terminated { .. })
    }

    /// Status, as the API names it.
    pub(super) fn status(&self) -> &'static str {
        if self.is_strange && self.phase == Phase::Active {
            return "alert";
        }
        match self.phase {
            Phase::Booting { .. } => "booting",
            Phase::Active => "active",
            Phase::Unhealthy => "unhealthy",
            Phase::Preempted { .. } => "preempted",
            Phase::Terminating { .. } => "terminating",
            Phase::Terminated { .. } => "terminated",
        }
    }

    /// Whether the instance should have a host; while terminating it no longer answers.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Booting { .. } | Phase::Active | Phase::Unhealthy)
    }

    /// Reason codes why an instance cannot be restarted or terminated now.
    pub(super) fn blocked(&self) -> [Option<&'static str>; 2] {
        let (restart, terminate) = match self.phase {
            Phase::Booting { .. } => (Some("vm-has-not-launched"), None),
            Phase::Active | Phase::Unhealthy => (None, None),
            Phase::Terminating { .. } | Phase::Terminated { .. } | Phase::Preempted { .. } => {
                (Some("vm-is-terminating"), Some("vm-is-terminating"))
            }
        };
        [restart, if self.refusals > 0 { Some("vm-action-in-progress") } else { terminate }]
    }

    /// The next phase of an instance, and when it begins.
    fn next_phase(&self, terminating: Duration) -> Option<(Phase, Timestamp)> {
        match self.phase {
            // An instance does not become active before its host exists.
            Phase::Booting { .. } if matches!(self.host, Host::Awaited { .. }) => None,
            Phase::Booting { until } => match self.outcome {
                Outcome::Stuck => None,
                Outcome::Unhealthy => Some((Phase::Unhealthy, until)),
                Outcome::Preempted => Some((Phase::Preempted { since: until }, until)),
                Outcome::Active | Outcome::NoAddress => Some((Phase::Active, until)),
            },
            Phase::Terminating { since } => {
                let at = after(since, terminating);
                Some((Phase::Terminated { since: at }, at))
            }
            Phase::Active | Phase::Unhealthy | Phase::Preempted { .. } | Phase::Terminated { .. } => None,
        }
    }
}

impl State {
    pub(super) fn instance(&mut self, id: &str) -> Option<&mut Instance> {
        self.instances.iter_mut().find(|instance| instance.id == id)
    }

    /// Changes an instance; false if it does not exist.
    pub(super) fn on_instance(&mut self, id: &str, change: impl FnOnce(&mut Instance)) -> bool {
        self.instance(id).map(change).is_some()
    }

    /// Moves instances to the phases that are due, and no longer lists those that ended long ago.
    pub(super) fn advance_instances(&mut self, now: Timestamp) {
        let (terminating, linger) = (self.config.terminating, self.config.linger);
        let mut given_back = Vec::new();
        for instance in &mut self.instances {
            // After a jump of the clock an instance may pass through several phases at once.
            while let Some((phase, at)) = instance.next_phase(terminating) {
                if at > now {
                    break;
                }
                if matches!(phase, Phase::Terminated { .. }) {
                    given_back.push((instance.kind.clone(), instance.region.clone()));
                }
                if matches!(phase, Phase::Terminated { .. } | Phase::Preempted { .. }) {
                    instance.ended.get_or_insert(at);
                }
                instance.phase = phase;
            }
        }
        for place in given_back {
            if let Some(free) = self.free.get_mut(&place) {
                free.count = free.count.saturating_add(1);
            }
        }
        self.instances.retain(|instance| match instance.phase {
            Phase::Terminated { since } => after(since, linger) > now,
            _ => true,
        });
    }
}
