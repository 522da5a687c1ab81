//! Lock, journal, observe, reconcile, execute, prove: the only way to change a cluster.

use super::executor::{Scene, execute};
use super::recovery::{look_until_certain, may_appear};
use super::{Cancel, Executed, Ledger, Replan, World};
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::event::{Bus, EventKind};
use crate::name::Key;
use crate::plan::{Goal, Observed, Outcome, Plan, reconcile};
use crate::provider::ResourceRequest;
use crate::state::{ClusterState, ItemKind, Record};

/// One run of the engine on one cluster.
pub struct Pipeline<'a> {
    /// The world to act on.
    pub world: &'a dyn World,
    /// Handles refusals for lack of capacity.
    pub replan: &'a dyn Replan,
    /// The cluster's journal.
    pub ledger: &'a Ledger,
    /// Where events are sent.
    pub events: &'a Bus,
    /// Cancellation by Ctrl-C.
    pub cancel: &'a Cancel,
}

/// A plan and the observation it is based on.
#[derive(Debug)]
pub struct Planned {
    /// The observation.
    pub observed: Observed,
    /// The operations to run.
    pub plan: Plan,
}

impl Pipeline<'_> {
    /// Observes, reconciles, records what was found, and returns the plan.
    pub async fn plan(&self, goal: &Goal) -> Result<Planned> {
        let observed = self.observe_consistent().await?;
        self.plan_for(goal, observed)
    }

    /// Reconciles an existing observation, on which the goal depends, records what was found, and returns the plan.
    pub fn plan_for(&self, goal: &Goal, observed: Observed) -> Result<Planned> {
        let known = self.ledger.state();
        let Outcome { plan, adopted, forgotten } = reconcile(goal, &known, &observed);
        for (key, kind, id, digest) in adopted {
            if self.ledger.state().items.get(&key).is_none_or(|item| item.digest != digest || item.id.is_none()) {
                self.ledger.write(Record::Requested { key: key.clone(), kind, digest })?;
            }
            self.ledger.write(Record::Exists { key, id })?;
        }
        for key in forgotten {
            self.ledger.write(Record::Gone { key })?;
        }
        if let Goal::Up(desired) = goal {
            self.price(&desired.resources, &known)?;
        }
        Ok(Planned { observed, plan })
    }

    /// Records the price of items that were only found by their tags.
    fn price(&self, requests: &[ResourceRequest], known: &ClusterState) -> Result<()> {
        let now = self.ledger.state();
        for request in requests.iter().filter(|request| request.adopted.is_none()) {
            let (Some(price), Some(item)) = (request.found.price, now.items.get(&request.key)) else { continue };
            if item.priced.is_some() || item.id.is_none() {
                continue;
            }
            // Requested by a command that died before the response: it may have existed since then.
            let asked = known.items.get(&request.key).filter(|before| before.id.is_none());
            let from = asked.map(|before| before.priced.as_ref().and_then(|it| it.from).unwrap_or(before.since));
            self.ledger.write(Record::Priced { key: request.key.clone(), price, from })?;
        }
        Ok(())
    }

    /// Executes a plan.
    pub async fn execute(&self, plan: &Plan) -> Executed {
        self.events.send(EventKind::PlanReady { text: plan.to_string(), operations: plan.operations.len() });
        let Self { world, replan, ledger, events, cancel } = *self;
        execute(plan, Scene { world, replan, ledger, events, cancel }).await
    }

    /// Removes the whole cluster: plans and executes, up to three times while anything is still observed.
    ///
    /// # Errors
    /// [`ErrorKind::LeftBehind`] if something of the cluster is still observed after the last attempt.
    pub async fn remove_all(&self) -> Result<Planned> {
        let first = self.plan(&Goal::Down).await?;
        let mut planned = Planned { observed: first.observed.clone(), plan: first.plan.clone() };
        for _ in 0..3 {
            self.execute(&planned.plan).await.into_result()?;
            planned = self.plan(&Goal::Down).await?;
            if planned.observed.is_empty() {
                return Ok(first);
            }
        }
        let left = planned.observed.describe();
        Err(Error::new(ErrorKind::LeftBehind, "remove everything of the cluster")
            .because("it was all removed, but this was found again afterwards")
            .left(LeftBehind::Remaining(left))
            .hint(format!("gpucl down -c {}", self.ledger.state().name)))
    }

    /// Observes; while an earlier call may still take effect, repeats for up to the provider's consistency delay.
    pub async fn observe_consistent(&self) -> Result<Observed> {
        let delay = self.world.consistency_delay();
        let look = || async { self.world.observe(&self.ledger.state()).await };
        let missing = |observed: &Observed| {
            let is_seen = |key: &Key| observed.resources.iter().any(|found| found.key == *key);
            let known = self.ledger.state();
            let mut resources = known.items.iter().filter(|(_, item)| item.kind != ItemKind::Project);
            resources.find(|(key, item)| may_appear(item, delay) && !is_seen(key)).map(|(key, _)| key.clone())
        };
        look_until_certain(delay, look, missing, self.cancel, self.events).await
    }
}
