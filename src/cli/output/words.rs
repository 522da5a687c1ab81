//! The text form of events, shared by the plain and the moving display.

use crate::event::{CheckOutcome, Event, EventKind, Finish, StepOutcome};
use crate::util::human;
use std::time::Duration;

/// The line of an event, if it has one. `verbose` includes what a moving display shows as progress.
pub(super) fn line(event: &Event, verbose: bool) -> Option<String> {
    match &event.kind {
        EventKind::PlanReady { operations: 0, .. } => Some("nothing to change".to_owned()),
        EventKind::PlanReady { operations, .. } => Some(format!("plan: {}", human::count(*operations, "operation"))),
        EventKind::OperationStarted { action, target, cause, .. } if verbose => {
            Some(format!("  {target}: {action} ({cause})"))
        }
        EventKind::OperationFinished { action, target, finish, milliseconds, .. } => {
            let time = time(*milliseconds);
            Some(match finish {
                Finish::Done => format!("  {target}: {action} done in {time}"),
                Finish::Failed => format!("  {target}: {action} FAILED after {time}"),
                Finish::Cancelled => format!("  {target}: {action} stopped after {time}"),
            })
        }
        EventKind::Step { host, step, outcome, milliseconds, .. } => match outcome {
            StepOutcome::Changed => Some(format!("    {host}: {step}: done in {}", time(*milliseconds))),
            StepOutcome::Failed => Some(format!("    {host}: {step}: FAILED after {}", time(*milliseconds))),
            StepOutcome::Skipped => verbose.then(|| format!("    {host}: {step}: nothing to do")),
        },
        EventKind::HostLine { host, line } if verbose => Some(format!("      {host}| {line}")),
        EventKind::Check { check, target, outcome, saw } => {
            let word = match outcome {
                CheckOutcome::Passed => "passed",
                CheckOutcome::Failed => "FAILED",
                CheckOutcome::Declared => "declared",
                CheckOutcome::Noted => "noted",
            };
            Some(format!("  {word:<9} {check:<16} {target:<10} {saw}"))
        }
        EventKind::Waiting { what, limit_milliseconds } if verbose => {
            let limit = human::duration(Duration::from_millis(*limit_milliseconds));
            Some(format!("waiting for {what} (up to {limit})"))
        }
        EventKind::Note { message } => Some(message.clone()),
        EventKind::Warning { message } => Some(format!("warning: {message}")),
        _ => None,
    }
}

fn time(milliseconds: u64) -> String {
    human::short_duration(Duration::from_millis(milliseconds))
}
