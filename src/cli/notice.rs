//! News of a cluster, as commands send it: that it is ready, that a job of `gpucl run` has ended, that it is down.
//!
//! Nothing here fails a command, and nothing waits longer than [`MOMENT`]: the process that sends goes on by itself.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use super::app::App;
use super::exit_code;
use crate::agent::end::End;
use crate::agent::notice::{self, Notice, Parcel, Said, Sending, kept_route, ready_key};
use crate::agent::watcher::log;
use crate::cluster::{self, Proof};
use crate::engine::{Cancel, Urgency};
use crate::error::{Error, ErrorKind};
use crate::event::Bus;
use crate::money::describe;
use crate::name::ClusterName;
use crate::ray::Job;
use crate::spec::Route;
use crate::util::fs::{RECORD_LIMIT, open_append};

/// How long a command waits, once its work is done, to say whether a notice was taken.
const MOMENT: Duration = Duration::from_secs(3);

/// Says that a cluster is ready, once each time it becomes so, and once to each place.
pub(crate) async fn ready(app: &App, name: &ClusterName, events: &Bus, cancel: &Cancel) {
    let folder = app.paths.cluster(name);
    let (Some(route), Ok(Some(known))) = (kept_route(&folder), cluster::status(&app.paths, name)) else { return };
    let Some(since) = known.state.ready_since else { return };
    let (key, end) = (ready_key(since, &route), End::of(&folder, &known.state));
    let notice = Notice::ready(name, end);
    let place = route.place();
    if let Some(sending) = start(app, Parcel { route, folder: Some(folder), key, again: true, notice }) {
        say(sending, &place, "the agent's log says what came of it", events, cancel).await;
    }
}

/// Says that a job has ended.
pub(crate) fn job_ended(app: &App, name: &ClusterName, job: &Job) {
    let folder = app.paths.cluster(name);
    let Some(route) = kept_route(&folder) else { return };
    let notice = Notice::job_ended(name, job.id(), job.status.as_str());
    let _ = start(app, Parcel { route, folder: Some(folder), key: format!("job-{}", job.id()), again: false, notice });
}

/// Says that a cluster is down.
pub(crate) async fn down(app: &App, name: &ClusterName, route: Route, done: &Proof, events: &Bus, cancel: &Cancel) {
    let cost = (!done.spending.is_none()).then(|| describe(&done.spending.so_far));
    let unknown = done.unknown.iter().map(|line| format!("unknown: {line}"));
    let left: Vec<String> = done.kept.iter().cloned().chain(unknown).collect();
    let notice = Notice::down(name, cost.as_deref(), &done.saved, &left);
    let place = route.place();
    if let Some(sending) = start(app, Parcel { route, folder: None, key: "down".to_owned(), again: false, notice }) {
        say(sending, &place, "it is not said whether that succeeds", events, cancel).await;
    }
}

/// Says once that a cluster could not be taken down. One that another command works on, or that was stopped by its user, is no
/// news.
pub(crate) fn not_down(app: &App, name: &ClusterName, route: &Route, error: &Error) {
    if matches!(error.kind(), ErrorKind::Locked | ErrorKind::Cancelled | ErrorKind::NotFound | ErrorKind::Usage) {
        return;
    }
    let left = cluster::status(&app.paths, name).ok().flatten().map(|known| known.report.resources).unwrap_or_default();
    let (notice, folder) = (Notice::not_down(name, &left), Some(app.paths.cluster(name)));
    let _ = start(app, Parcel { route: route.clone(), folder, key: "not-down".to_owned(), again: false, notice });
}

/// Starts sending, unless that was said; a failure to start is a warning.
fn start(app: &App, parcel: Parcel) -> Option<Sending> {
    let folder: Option<&PathBuf> = parcel.folder.as_ref();
    if folder.is_some_and(|folder| !parcel.again && Said::of(folder).has(&parcel.key)) {
        return None;
    }
    // The folder of a cluster that is gone gets no new file.
    let log = folder.and_then(|folder| open_append(&log(folder)).ok()).map_or_else(Stdio::null, Into::into);
    let started = std::env::current_exe().and_then(|program| notice::start(&program, None, log, &parcel));
    started.map_err(|error| app.ui.status(format_args!("warning: no news is sent: {error}"))).ok()
}

/// Waits a moment, and warns if it was not taken by then.
async fn say(sending: Sending, place: &str, after: &str, events: &Bus, cancel: &Cancel) {
    let taken = tokio::select! {
        taken = sending.taken_within(MOMENT) => taken,
        () = cancel.at_least(Urgency::Finish) => return,
    };
    if let Err(why) = taken {
        events.warn(format!(
            "`notify`: {place} has not taken the news yet ({why}); it is tried again for a minute or two, and {after}"
        ));
    }
}

/// Sends the notice on standard input: the process that [`start`] starts. What came of the first attempt goes to stdout, a
/// failure in the end to the log.
pub(super) async fn deliver(app: &App) -> u8 {
    // Detach from the terminal of the command that started it.
    let _ = rustix::process::setsid();
    let mut text = Vec::new();
    let read = std::io::stdin().take(RECORD_LIMIT).read_to_end(&mut text);
    let Some(parcel) = read.ok().and_then(|_| serde_json::from_slice::<Parcel>(&text).ok()) else {
        app.ui.error_line("error: there is no notice on standard input");
        return exit_code::USAGE;
    };
    let environment = app.user_environment().variables;
    let sent = notice::deliver(&parcel, &environment, |why| app.ui.data(why)).await;
    let Err(why) = sent else { return exit_code::DONE };
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    app.ui.error_line(&format!("{now} warning: nobody has taken the news `{}`: {why}", parcel.notice.text));
    exit_code::FAILED
}
