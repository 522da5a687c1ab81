//! Runs a command that changes a cluster: events, run record and Ctrl-C.

use std::time::Instant;

use super::app::App;
use super::global::Format;
use super::output::{Json, Plain, Tty};
use crate::engine::{By, Cancel, CancelHandle, Urgency};
use crate::error::{ErrorKind, Result};
use crate::event::{Bus, Endpoint, EventKind, Finish, RunRecord, Sink, dispatch};

/// The result of a successful run.
#[derive(Debug)]
pub(crate) struct Ended {
    /// A summary in one sentence.
    pub(crate) summary: String,
    /// The endpoints that now answer.
    pub(crate) endpoints: Vec<Endpoint>,
}

/// Runs `work` with an event bus and a cancellation; shows and records its events.
pub(crate) async fn run<F>(app: &App, verb: &str, cluster: &str, work: impl FnOnce(Bus, Cancel) -> F) -> Result<Ended>
where
    F: Future<Output = Result<Ended>>,
{
    let (bus, inbox) = Bus::new();
    let run = format!("{}-{verb}-{cluster}", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%3fZ"));
    let mut sinks: Vec<Box<dyn Sink>> = vec![Box::new(RunRecord::begin(&app.paths.runs(), &run))];
    sinks.push(match app.ui.format() {
        Format::Json => Box::new(Json(app.ui)),
        Format::Text if app.ui.progress() => Box::new(Tty::new(app.ui.colour())),
        Format::Text => Box::new(Plain(app.ui)),
    });
    let shown = tokio::spawn(dispatch(inbox, Some(cluster.to_owned()), sinks));
    let (handle, cancel) = Cancel::new();
    let signals = tokio::spawn(signals(handle, bus.clone(), cluster.to_owned()));
    let begin = Instant::now();
    bus.send(EventKind::RunStarted { verb: verb.to_owned(), run });
    let result = work(bus.clone(), cancel).await;
    let (finish, summary, endpoints) = match &result {
        Ok(ended) => (Finish::Done, ended.summary.clone(), ended.endpoints.clone()),
        Err(error) if error.kind() == ErrorKind::Cancelled => (Finish::Cancelled, error.to_string(), Vec::new()),
        Err(error) => (Finish::Failed, error.to_string(), Vec::new()),
    };
    let milliseconds = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    bus.send(EventKind::RunFinished { verb: verb.to_owned(), finish, summary, endpoints, milliseconds });
    signals.abort();
    let _ = signals.await;
    drop(bus);
    // Show every event that was sent, but do not wait for a task that still holds a sender.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(2), shown).await;
    result
}

/// First Ctrl-C: start nothing new, wait for nothing. Second: drop calls in flight.
async fn signals(handle: CancelHandle, bus: Bus, cluster: String) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    loop {
        let by = tokio::select! {
            _ = interrupt.recv() => By::CtrlC,
            _ = terminate.recv() => By::Process,
        };
        match (handle.press(by), by) {
            (Urgency::Finish, By::CtrlC) => bus.warn(
                "stopping: calls in flight finish, waits end, nothing new starts; press Ctrl-C again to stop now",
            ),
            (Urgency::Finish, By::Process) => bus.warn(format!("stopping: {by}; calls in flight finish")),
            _ => bus.warn(format!(
                "stopped: running operations are on record; `gpucl up` continues, `gpucl down -c {cluster}` removes all"
            )),
        }
    }
}
