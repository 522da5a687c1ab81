//! Executes a plan with as much concurrency as its order allows, and journals each call before and after it is made.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;

use super::write_ahead::{has_id, making, removing};
use super::{Cancel, Ledger, Replan, Urgency, World};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Bus, EventKind, Finish};
use crate::name::Key;
use crate::plan::{Action, Change, HostAction, Operation, Plan, ResourceAction};
use crate::provider::ObservedResource;
use crate::state::{ItemKind, Record};

/// What a plan is executed with.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
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

/// The outcome of a plan.
#[derive(Debug, Default)]
pub struct Executed {
    /// The operations that are done.
    pub done: Vec<usize>,
    /// The operations that were not begun.
    pub not_started: Vec<usize>,
    /// The errors, in the order of failure.
    pub errors: Vec<Error>,
}

/// How long an operation may take to stop cleanly before it is dropped.
const LAST_MOMENT: Duration = Duration::from_millis(500);

impl Executed {
    fn take(&mut self, (operation, result): (&Operation, Result<()>)) {
        match result {
            Ok(()) => self.done.push(operation.id),
            // What was given up because of a failure adds nothing to it.
            Err(error) if error.kind() == ErrorKind::Cancelled && !self.errors.is_empty() => {}
            Err(error) => self.errors.push(error),
        }
    }

    /// The first error, if any.
    pub fn into_result(self) -> Result<()> {
        let more = self.errors.len().saturating_sub(1);
        match self.errors.into_iter().next() {
            None => Ok(()),
            Some(error) if more == 0 => Err(error),
            Some(error) => Err(error.because(format!("{more} more failed after it; each is shown above"))),
        }
    }
}

/// Executes all operations of a plan, each as soon as its predecessors are done.
///
/// After a failure nothing that needs the failed operation is begun; the rest goes on, also while a branch refused for
/// lack of capacity is replanned. If the head does not come up, the other hosts' nodes, which wait for it, are given up.
/// With [`Urgency::Finish`] nothing more is begun; with [`Urgency::Now`] operations in
/// flight are dropped, and the journal shows it.
pub(super) async fn execute(plan: &Plan, on: Scene<'_>) -> Executed {
    let cancel = on.cancel;
    let mut executed = Executed::default();
    let mut begun = BTreeSet::new();
    let mut running = FuturesUnordered::new();
    let head_failed = watch::Sender::new(false);
    loop {
        if cancel.urgency() == Urgency::None {
            for operation in &plan.operations {
                let free = !begun.contains(&operation.id)
                    && operation.after.iter().all(|before| executed.done.contains(before));
                if free {
                    begun.insert(operation.id);
                    running.push(one(operation, on, head_failed.subscribe()));
                }
            }
        }
        if running.is_empty() {
            break;
        }
        tokio::select! {
            Some(ended) = running.next() => {
                if ended.1.is_err() && brings_up_head(ended.0) {
                    head_failed.send_replace(true);
                }
                executed.take(ended);
            }
            () = cancel.at_least(Urgency::Now) => {
                // An operation that can stop cleanly knows best what it leaves running.
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
        executed.errors.push(Error::new(ErrorKind::Cancelled, "finish the plan").because(cancel.by().to_string()));
    }
    executed
}

fn brings_up_head(operation: &Operation) -> bool {
    let Action::Host(HostAction::Deploy { nodes, .. }) = &operation.action else { return false };
    nodes.iter().any(|change| change.node == Key::head() && change.change != Change::Keep)
}

/// Performs one operation and reports it.
async fn one<'a>(
    operation: &'a Operation,
    on: Scene<'_>,
    mut head_failed: watch::Receiver<bool>,
) -> (&'a Operation, Result<()>) {
    let events = on.events;
    let (action, target) = (operation.action.name().to_owned(), operation.key.display_name());
    events.send(EventKind::OperationStarted {
        operation: operation.id,
        action: action.clone(),
        target: target.clone(),
        cause: operation.cause.clone(),
    });
    let started = Instant::now();
    let waits_for_head =
        matches!(operation.action, Action::Host(HostAction::Deploy { .. })) && !brings_up_head(operation);
    let result = tokio::select! {
        result = carried_out(operation, on) => result,
        Ok(_) = head_failed.wait_for(|failed| *failed), if waits_for_head => {
            let doing = format!("deploy {}", operation.key.display_name());
            Err(Error::new(ErrorKind::Cancelled, doing).because("the head, which its nodes wait for, did not come up"))
        }
    };
    if let Err(error) = &result {
        on.replan.note_failure(error);
    }
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

/// Performs an operation; after each refusal for lack of capacity, its replacement.
async fn carried_out(operation: &Operation, on: Scene<'_>) -> Result<()> {
    let mut operation = Cow::Borrowed(operation);
    let mut refused = Vec::new();
    loop {
        let Err(error) = journalled(&operation, on).await else { return Ok(()) };
        let request = match &operation.action {
            Action::Resource(ResourceAction::Acquire { request }) if error.kind() == ErrorKind::Capacity => request,
            _ => return Err(error),
        };
        // The resource was created, and failed later.
        if has_id(on.ledger, &operation.key) {
            return Err(error);
        }
        refused.push(request.clone());
        let request = on.replan.replacement(&refused, error, on.ledger).await?;
        operation.to_mut().action = ResourceAction::Acquire { request }.into();
    }
}

/// Performs an operation, with the journal's records before and after the call. The wait that follows is no call: the
/// first Ctrl-C ends it.
async fn journalled(operation: &Operation, on: Scene<'_>) -> Result<()> {
    match &operation.action {
        Action::Resource(action) => on_resource(&operation.key, action, on).await,
        Action::Host(action) => on_host(&operation.key, action, on).await,
    }
}

async fn on_resource(key: &Key, action: &ResourceAction, on: Scene<'_>) -> Result<()> {
    let Scene { world, ledger, .. } = on;
    let (request, id) = match action {
        ResourceAction::Acquire { request } => {
            let call = world.acquire(request, ledger);
            (request, &making(ledger, request, world.costs_from(request), call).await?)
        }
        ResourceAction::Update { request, id } => {
            ledger.write(Record::Changing { key: key.clone() })?;
            world.update(request, id, ledger).await?;
            (request, id)
        }
        ResourceAction::Await { request, id } => (request, id),
        ResourceAction::Release { resource } => {
            let call = world.release(resource);
            // Of a duplicate, the journal has the id of another, which stays.
            return if known_by_another_id(ledger, resource) { call.await } else { removing(ledger, key, call).await };
        }
    };
    let doing = format!("wait for {}", key.display_name());
    on.cancel.unless_pressed(&doing, world.wait_usable(request, id, ledger)).await?;
    ledger.write(Record::Ready { key: key.clone() })
}

async fn on_host(key: &Key, action: &HostAction, on: Scene<'_>) -> Result<()> {
    let ledger = on.ledger;
    let hosts = on.world.hosts().ok_or_else(|| {
        Error::new(ErrorKind::Internal, format!("{} {}", action.name(), key.display_name())).because("it has no hosts")
    })?;
    let call = hosts.perform(key, action, ledger);
    match action {
        // Its item stays as it is: of a host, and of a project whose files and volumes remain.
        HostAction::Prepare { .. }
        | HostAction::SetFirewall { .. }
        | HostAction::Fill { .. }
        | HostAction::StopProject { .. } => call.await,
        HostAction::Deploy { .. } => {
            let digest = String::new();
            ledger.write(Record::Requested { key: key.clone(), kind: ItemKind::Project, digest })?;
            call.await
        }
        HostAction::Clean { .. } => removing(ledger, key, call).await,
    }
}

fn known_by_another_id(ledger: &Ledger, resource: &ObservedResource) -> bool {
    let known = ledger.state();
    known.items.get(&resource.key).and_then(|item| item.id.as_deref()).is_some_and(|known| known != resource.id)
}
