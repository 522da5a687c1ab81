//! Runs the plan, again and again, until it is done or nothing more can be tried.

use std::collections::BTreeSet;
use std::time::Duration;

use super::capacity::{AfterRun, CapacityWait, PlanRun, Tried};
use crate::cluster::hosts::on_hosts::OnHosts;
use crate::engine::{Executed, Pipeline, Planned};
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::name::Key;
use crate::plan::{Action, Goal, HostAction, Observed, Operation, Plan, ResourceAction};
use crate::provider::Offer;
use crate::spec::Loaded;
use crate::state::ClusterState;

/// How long an abandoned plan may take to report its errors.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// Carries out the plan, and replans as long as [`super::decide`] says so. Returns the number of operations.
pub(in crate::cluster::hosts) async fn carry_to(
    pipeline: &Pipeline<'_>,
    on: &OnHosts,
    loaded: &Loaded,
    mut offers: Vec<Offer>,
    mut observed: Observed,
    mut goal: Goal,
) -> Result<usize> {
    let wait = &on.wait;
    let (mut operations, mut tried) = (0, Tried::default());
    let mut made = BTreeSet::new();
    loop {
        let Planned { observed: current, plan } = pipeline.plan_for(&goal, observed)?;
        on.note_resources(&current, pipeline.ledger)?;
        operations += plan.operations.len();
        made.extend(acquired(&plan));
        wait.begin();
        let mut errors = carry_out(pipeline, wait, &plan).await.errors;
        let (needs_replan, mut gave_back) = (wait.needs_replan(), false);
        loop {
            let (has_made, makes_hosts) = (!made.is_empty(), on.supply.makes_hosts());
            let run = PlanRun { errors: &errors, has_made, needs_replan, makes_hosts };
            let at = wait.moment();
            match wait.policy().after_run(run, tried, at) {
                AfterRun::Done => {
                    observe_all_again(pipeline, on, &plan).await?;
                    return Ok(operations);
                }
                AfterRun::Fail => {
                    let (first, others) = first_of(errors);
                    others.iter().for_each(|other| pipeline.events.warn(format!("failed to {other}")));
                    return Err(first);
                }
                AfterRun::Recreate => {
                    tried.renewed = true;
                    pipeline.events.warn(format!("failed to {}; it is created again", first_of(errors).0));
                }
                AfterRun::GiveBack => {
                    errors = vec![give_back(pipeline, &mut made, first_of(errors).0).await?];
                    gave_back = true;
                    continue;
                }
                AfterRun::Resolve => {
                    tried.places += usize::from(!wait.policy().waits(at));
                    wait.begin();
                    offers = on.resolve_or_wait().await?.offers;
                }
                AfterRun::WaitAndResolve => {
                    wait.begin();
                    offers = on.resolve_again(first_of(errors).0).await?.offers;
                }
                AfterRun::End => {
                    let refused = first_of(errors).0;
                    return Err(if gave_back { refused } else { kept(on, &pipeline.ledger.state(), refused) });
                }
            }
            break;
        }
        observed = pipeline.observe_consistent().await?;
        goal = on.goal_of_up(loaded, &offers, &pipeline.ledger.state(), &observed)?;
    }
}

/// Observes all hosts again after a deployment to several: only then does the head see all nodes.
async fn observe_all_again(pipeline: &Pipeline<'_>, on: &OnHosts, plan: &Plan) -> Result<()> {
    let deploys = |operation: &Operation| matches!(operation.action, Action::Host(HostAction::Deploy { .. }));
    if on.hosts().len() > 1 && plan.operations.iter().any(deploys) {
        on.observe_all(&pipeline.ledger.state()).await?;
    }
    Ok(())
}

/// The error to end with, and the others. Any other error takes precedence over lack of capacity.
fn first_of(mut errors: Vec<Error>) -> (Error, Vec<Error>) {
    let first = errors.iter().position(|error| error.kind() != ErrorKind::Capacity).unwrap_or_default();
    if errors.is_empty() {
        return (Error::new(ErrorKind::Internal, "carry out the plan").because("it failed without an error"), errors);
    }
    let error = errors.remove(first);
    match errors.len() {
        0 => (error, errors),
        more => (error.because(format!("{more} more failed after it; each is shown above")), errors),
    }
}

/// The keys of the resources that a plan acquires.
fn acquired(plan: &Plan) -> impl Iterator<Item = Key> {
    let acquires =
        |operation: &&Operation| matches!(operation.action, Action::Resource(ResourceAction::Acquire { .. }));
    plan.operations.iter().filter(acquires).map(|operation| operation.key.clone())
}

/// Executes the plan, or abandons it once existing resources are to be released.
async fn carry_out(pipeline: &Pipeline<'_>, wait: &CapacityWait, plan: &Plan) -> Executed {
    let mut executed = Box::pin(pipeline.execute(plan));
    tokio::select! {
        biased;
        executed = &mut executed => executed,
        () = wait.gave_up() => {
            match tokio::time::timeout(LAST_MOMENT, executed).await {
                Ok(executed) => executed,
                Err(_) => Executed { errors: vec![wait.refusal()], ..Executed::default() },
            }
        }
    }
}

/// Releases what this command has created, and verifies that it is gone.
async fn give_back(pipeline: &Pipeline<'_>, made: &mut BTreeSet<Key>, refused: Error) -> Result<Error> {
    pipeline
        .events
        .note("not all hosts are available: what was created is released (`capacity: {partial: give_back}`)");
    let goal = Goal::GiveBack(std::mem::take(made));
    for _ in 0..3 {
        let observed = pipeline.observe_consistent().await?;
        let planned = pipeline.plan_for(&goal, observed)?;
        if planned.plan.is_empty() {
            return Ok(refused.because("what was created was released"));
        }
        pipeline.execute(&planned.plan).await.into_result()?;
    }
    Err(Error::new(ErrorKind::LeftBehind, "release what was created")
        .because("it was all released, but the provider still lists some of it")
        .left(LeftBehind::Unknown))
}

/// Adds which hosts exist, and what they cost.
fn kept(on: &OnHosts, known: &ClusterState, refused: Error) -> Error {
    let hosts = on.hosts();
    let there = hosts.iter().filter(|host| known.items.get(*host).is_some_and(|item| item.id.is_some()));
    let names: Vec<String> = there.map(Key::display_name).collect();
    if names.is_empty() {
        return refused;
    }
    let cost = on.supply.hourly(known).map(|cost| format!(", which costs {cost} an hour")).unwrap_or_default();
    refused.because(format!("{} of {} hosts exist and are kept: {}{cost}", names.len(), hosts.len(), names.join(", ")))
}
