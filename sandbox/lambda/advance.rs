//! State changes that come with time. They are computed lazily, whenever the state is locked.

use jiff::Timestamp;

use super::super::clock::after;
use super::super::shared::Advance;
use super::config::Outcome;
use super::state::{Host, Instance, Phase, State};

impl Advance for State {
    fn advance(&mut self) {
        let now = self.now();
        for (at, place, count) in std::mem::take(&mut self.coming) {
            if at <= now {
                self.set_free(place, count);
            } else {
                self.coming.push((at, place, count));
            }
        }
        let (terminating, linger) = (self.config.terminating, self.config.linger);
        let mut given_back = Vec::new();
        for instance in &mut self.instances {
            // After a jump of the clock an instance may pass through several phases at once.
            while let Some((phase, at)) = next(instance, terminating) {
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

/// The next phase of an instance, and when it begins.
fn next(instance: &Instance, terminating: std::time::Duration) -> Option<(Phase, Timestamp)> {
    match instance.phase {
        // An instance does not become active before its host exists.
        Phase::Booting { .. } if matches!(instance.host, Host::Awaited { .. }) => None,
        Phase::Booting { until } => match instance.outcome {
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

impl State {
    /// Sets how many are free; listed capacity matches it again.
    pub(super) fn set_free(&mut self, place: (String, String), count: u32) {
        let free = self.free.entry(place).or_default();
        free.count = count;
        free.is_phantom = false;
    }
}
