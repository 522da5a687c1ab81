//! Walks a plan: what can be done at the same time is; each call stands in the journal before and after it is made.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::{Cancel, Ledger, Urgency, World};
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::event::{Bus, EventKind, Finish};
use crate::plan::{Action, Operation, Plan};
use crate::state::{ItemKind, Record};

/// What became of a plan.
#[derive(Debug, Default)]
pub struct Executed {
    /// The operations that are done.
    pub done: Vec<usize>,
    /// The operations that were not begun.
    pub not_started: Vec<usize>,
    /// What failed, in the order of failure.
    pub errors: Vec<Error>,
}

/// How long an operation may take to stop by itself when it is to stop now.
const LAST_MOMENT: Duration = Duration::from_millis(500);

impl Executed {
    fn take(&mut self, (operation, result): (&Operation, Result<()>)) {
        match result {
            Ok(()) => self.done.push(operation.id),
            Err(error) => self.errors.push(error),
        }
    }

    /// The first error, if one came.
    pub fn into_result(self) -> Result<()> {
        let more = self.errors.len().saturating_sub(1);
        match self.errors.into_iter().next() {
            None => Ok(()),
            Some(error) if more == 0 => Err(error),
            Some(error) => Err(error.because(format!("{more} more failed after it; each is shown above"))),
        }
    }
}

/// Does all operations of a plan, each as soon as its predecessors are done.
///
/// After a failure nothing that needs the failed operation is begun; the rest goes on. With [`Urgency::Finish`] nothing
/// more is begun; with [`Urgency::Now`] what is in flight is dropped, and the journal says so.
pub async fn execute(plan: &Plan, world: &dyn World, ledger: &Ledger, events: &Bus, cancel: &Cancel) -> Executed {
    let mut executed = Executed::default();
    let mut begun = BTreeSet::new();
    let mut running = FuturesUnordered::new();
    loop {
        if cancel.urgency() == Urgency::None {
            for operation in &plan.operations {
                let free = !begun.contains(&operation.id)
                    && operation.after.iter().all(|before| executed.done.contains(before));
                if free {
                    begun.insert(operation.id);
                    running.push(one(operation, world, ledger, events));
                }
            }
        }
        if running.is_empty() {
            break;
        }
        tokio::select! {
            Some(ended) = running.next() => executed.take(ended),
            () = cancel.at_least(Urgency::Now) => {
                // What can stop by itself says best what goes on without us.
                let last = async {
                    while let Some(ended) = running.next().await {
                        executed.take(ended);
                    }
                };
                let _ = tokio::time::timeout(LAST_MOMENT, last).await;
                break;
            }
        }
    }
    drop(running);
    for operation in plan.operations.iter().filter(|operation| !executed.done.contains(&operation.id)) {
        if !begun.contains(&operation.id) {
            executed.not_started.push(operation.id);
        }
    }
    if cancel.urgency() != Urgency::None && executed.done.len() < plan.operations.len() && executed.errors.is_empty() {
        executed.errors.push(Error::new(ErrorKind::Cancelled, "finish the plan").because("it was stopped with Ctrl-C"));
    }
    executed
}

/// Does one operation, and tells.
async fn one<'a>(
    operation: &'a Operation,
    world: &dyn World,
    ledger: &Ledger,
    events: &Bus,
) -> (&'a Operation, Result<()>) {
    let (action, target) = (operation.action.name().to_owned(), operation.key.display_name());
    events.send(EventKind::OperationStarted {
        operation: operation.id,
        action: action.clone(),
        target: target.clone(),
        cause: operation.cause.clone(),
    });
    let started = Instant::now();
    let result = journalled(operation, world, ledger).await;
    events.send(EventKind::OperationFinished {
        operation: operation.id,
        action,
        target,
        finish: match &result {
            Ok(()) => Finish::Done,
            Err(error) if error.kind() == ErrorKind::Cancelled => Finish::Cancelled,
            Err(_) => Finish::Failed,
        },
        milliseconds: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
    (operation, result)
}

/// The journal before, the call, the journal after.
async fn journalled(operation: &Operation, world: &dyn World, ledger: &Ledger) -> Result<()> {
    let key = operation.key.clone();
    match &operation.action {
        Action::Acquire { request } => {
            let kind = ItemKind::Resource(request.kind.0.clone());
            ledger.write(Record::Requested { key: key.clone(), kind, digest: request.digest() })?;
            if let Some(price) = request.price {
                ledger.write(Record::Priced { key: key.clone(), price, from: world.costs_from(request) })?;
            }
            if let Err(error) = world.perform(operation, ledger).await {
                let has_id = ledger.state().items.get(&key).is_some_and(|item| item.id.is_some());
                // A refusal for want of capacity is sure: nothing came of it, and nothing is to be looked for.
                if error.kind() == ErrorKind::Capacity && *error.left_behind() == LeftBehind::Clear && !has_id {
                    ledger.write(Record::Gone { key })?;
                }
                return Err(error);
            }
            ledger.write(Record::Ready { key })
        }
        Action::Await { .. } => {
            world.perform(operation, ledger).await?;
            ledger.write(Record::Ready { key })
        }
        // A host that is being prepared is not made by it: its item stays what it is.
        Action::Prepare { .. } | Action::Guard { .. } => world.perform(operation, ledger).await,
        // One of several is released, and the journal speaks of another: that one stays known.
        Action::Release { resource } if known_by_another_id(ledger, operation, &resource.id) => {
            world.perform(operation, ledger).await
        }
        Action::Deploy { .. } => {
            let digest = String::new();
            ledger.write(Record::Requested { key, kind: ItemKind::Project, digest })?;
            world.perform(operation, ledger).await
        }
        // It runs no more, but its files and volumes are there still: it stays known.
        Action::StopProject { .. } => world.perform(operation, ledger).await,
        Action::Clean { .. } | Action::Release { .. } => {
            ledger.write(Record::Releasing { key: key.clone() })?;
            world.perform(operation, ledger).await?;
            ledger.write(Record::Gone { key })
        }
    }
}

fn known_by_another_id(ledger: &Ledger, operation: &Operation, id: &str) -> bool {
    let known = ledger.state();
    known.items.get(&operation.key).and_then(|item| item.id.as_deref()).is_some_and(|known| known != id)
}
