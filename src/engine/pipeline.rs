//! Lock, journal, observe, reconcile, execute, prove: the one way in which a cluster is changed.

use std::time::{Duration, Instant};

use super::executor::{Scene, execute};
use super::{Cancel, Executed, Ledger, Replan, Urgency, World};
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::event::{Bus, EventKind};
use crate::plan::{Goal, Observed, Outcome, Plan, reconcile};
use crate::provider::ResourceRequest;
use crate::state::{ClusterState, ItemKind, ItemState, Record};

/// One run on one cluster.
pub struct Pipeline<'a> {
    /// What is acted upon.
    pub world: &'a dyn World,
    /// What a refusal for want of capacity leads to.
    pub replan: &'a dyn Replan,
    /// The cluster's journal.
    pub ledger: &'a Ledger,
    /// Who is told.
    pub events: &'a Bus,
    /// Whether to go on.
    pub cancel: &'a Cancel,
}

/// A plan and what it was made of.
#[derive(Debug)]
pub struct Planned {
    /// What was seen.
    pub observed: Observed,
    /// What is to be done.
    pub plan: Plan,
}

impl Pipeline<'_> {
    /// Looks, compares, writes down what was found, and hands back the plan.
    pub async fn plan(&self, goal: &Goal) -> Result<Planned> {
        let observed = self.observe_consistent().await?;
        self.plan_for(goal, observed)
    }

    /// The same with what was seen already, for a goal that depends on it.
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

    /// What is there and was found by its tag alone costs as much as what was asked for.
    fn price(&self, requests: &[ResourceRequest], known: &ClusterState) -> Result<()> {
        let now = self.ledger.state();
        for request in requests.iter().filter(|request| request.adopted.is_none()) {
            let (Some(price), Some(item)) = (request.found.price, now.items.get(&request.key)) else { continue };
            if item.priced.is_some() || item.id.is_none() {
                continue;
            }
            // Asked for by a command that died before it was answered: it may be there since then.
            let asked = known.items.get(&request.key).filter(|before| before.id.is_none());
            let from = asked.map(|before| before.priced.as_ref().and_then(|it| it.from).unwrap_or(before.since));
            self.ledger.write(Record::Priced { key: request.key.clone(), price, from })?;
        }
        Ok(())
    }

    /// Does a plan.
    pub async fn execute(&self, plan: &Plan) -> Executed {
        self.events.send(EventKind::PlanReady { text: plan.to_string(), operations: plan.operations.len() });
        let on = Scene { world: self.world, replan: self.replan, ledger: self.ledger, events: self.events };
        execute(plan, on, self.cancel).await
    }

    /// Plans and does, again while something shows up that the plan did not know, up to three times.
    ///
    /// # Errors
    /// [`ErrorKind::LeftBehind`] when something of the cluster is still seen after the last time.
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
            .because("it was all ended, and this was seen again afterwards")
            .left(LeftBehind::Remaining(left))
            .hint(format!("gpucl down -c {}", self.ledger.state().name)))
    }

    /// Observes; where a call may have been sent whose effect can still be on its way, waits for it first.
    pub async fn observe_consistent(&self) -> Result<Observed> {
        let begin = Instant::now();
        loop {
            let known = self.ledger.state();
            let observed = self.world.observe(&known).await?;
            let open = known.items.iter().find(|(key, item)| {
                item.state == ItemState::Requested
                    && item.id.is_none()
                    && item.kind != ItemKind::Project
                    && !observed.resources.iter().any(|found| found.key == **key)
                    && item.since.duration_until(jiff::Timestamp::now()).unsigned_abs() < self.world.consistency_delay()
            });
            let Some((key, _)) = open else { return Ok(observed) };
            if begin.elapsed() > self.world.consistency_delay() || self.cancel.urgency() == Urgency::Now {
                return Ok(observed);
            }
            self.events.note(format!(
                "a call for {} may still take effect; looking again for up to {}",
                key.display_name(),
                crate::util::human::short_duration(self.world.consistency_delay())
            ));
            tokio::time::sleep(Duration::from_millis(500).min(self.world.consistency_delay() / 4)).await;
        }
    }
}
