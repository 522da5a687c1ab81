//! An `up` that waits for its hosts, started apart from this process, and followed from here.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::app::App;
use super::run::Ended;
use crate::agent::Armed;
use crate::engine::{Cancel, Urgency};
use crate::error::{Doing as _, Error, ErrorKind, LeftBehind, Result};
use crate::event::{Bus, Event, EventKind, WorkerGpus};
use crate::name::ClusterName;
use crate::util::fs::create_private_dir;
use crate::util::human;
use crate::util::process::Identity;

/// How often the record is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// One that waits already.
pub(crate) fn waiting(app: &App, cluster: &ClusterName) -> Option<Armed> {
    Armed::of(&app.paths.cluster(cluster))
}

/// Starts one, away from the terminal: it outlives this process.
pub(crate) fn start(
    app: &App,
    cluster: &ClusterName,
    spec: &Path,
    new_spec: bool,
    wait_capacity: Option<Duration>,
) -> Result<Identity> {
    let doing = || format!("start what waits for the hosts of {cluster}");
    let record = record(app, cluster);
    record.parent().map_or(Ok(()), create_private_dir).doing(ErrorKind::State, doing)?;
    let out = fs_err::File::create(&record).doing(ErrorKind::State, doing)?;
    let program = std::env::current_exe().doing(ErrorKind::Internal, doing)?;
    let mut command = std::process::Command::new(program);
    command.args(["agent", "--cluster", cluster.as_str(), "--output", "json", "--yes", "--armed"]).arg(spec);
    if new_spec {
        command.arg("--new-spec");
    }
    if let Some(wait) = wait_capacity {
        command.arg("--wait-capacity").arg(human::duration(wait));
    }
    if let Some(folder) = app.data_dirs.first().filter(|_| app.data_dirs.len() > 2) {
        command.arg("--data-dir").arg(folder);
    }
    // It asks the cloud as this process does, so it has the same environment; what it starts on hosts gets none of it.
    let child = command
        .stdin(Stdio::null())
        .stdout(out.into_file())
        .stderr(Stdio::null())
        .spawn()
        .doing(ErrorKind::Host, doing)?;
    Identity::of(child.id()).ok_or_else(|| Error::new(ErrorKind::Host, doing()).because("it ended at once"))
}

/// Shows what it does until it ends; ended from here (Ctrl-C), it goes on.
pub(crate) async fn follow(
    app: &App,
    cluster: &ClusterName,
    identity: &Identity,
    events: &Bus,
    cancel: &Cancel,
) -> Result<(Ended, Vec<WorkerGpus>)> {
    let path = record(app, cluster);
    let doing = || format!("follow the start of {cluster}");
    let mut file = fs_err::File::open(&path).doing(ErrorKind::State, doing)?;
    let (mut read, mut rest) = (0_u64, String::new());
    let mut told = Told::default();
    loop {
        // Asked before it is read: what it wrote last is read after its end.
        let is_over = !identity.is_alive();
        let mut text = String::new();
        file.seek(SeekFrom::Start(read)).and_then(|_| file.read_to_string(&mut text)).doing(ErrorKind::State, doing)?;
        read += text.len() as u64;
        rest.push_str(&text);
        while let Some(end) = rest.find('\n') {
            let line: String = rest.drain(..=end).collect();
            told.take(line.trim_end(), events);
        }
        if is_over {
            return told.end(cluster);
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = cancel.at_least(Urgency::Finish) => {
                return Err(Error::new(ErrorKind::Cancelled, format!("watch the start of {cluster}"))
                    .because("you stopped watching; the start itself goes on and comes up by itself")
                    .hint(format!("gpucl up -c {cluster}      # watches again"))
                    .hint(format!("gpucl down -c {cluster}    # ends it")));
            }
        }
    }
}

/// What it has told so far of its end.
#[derive(Debug, Default)]
struct Told {
    ended: Option<Ended>,
    error: Option<Error>,
    gpus: Vec<WorkerGpus>,
}

impl Told {
    fn take(&mut self, line: &str, events: &Bus) {
        let Ok(event) = serde_json::from_str::<Event>(line) else {
            self.error = serde_json::from_str::<serde_json::Value>(line).ok().and_then(|value| error_of(&value));
            return;
        };
        match event.kind {
            EventKind::RunStarted { .. } => {}
            EventKind::RunFinished { summary, endpoints, .. } => self.ended = Some(Ended { summary, endpoints }),
            kind => {
                if let EventKind::WorkerGpus(gpus) = &kind {
                    self.gpus.push(gpus.clone());
                }
                events.send(kind);
            }
        }
    }

    fn end(self, cluster: &ClusterName) -> Result<(Ended, Vec<WorkerGpus>)> {
        match (self.error, self.ended) {
            (Some(error), _) => Err(error),
            (None, Some(ended)) => Ok((ended, self.gpus)),
            (None, None) => Err(Error::new(ErrorKind::Cancelled, format!("bring up {cluster}"))
                .because("what waited for its hosts was ended")
                .left(LeftBehind::Unknown)
                .hint(format!("gpucl status -c {cluster}"))),
        }
    }
}

/// The error that a run printed as JSON.
fn error_of(value: &serde_json::Value) -> Option<Error> {
    let texts = |name: &str| -> Vec<String> {
        value.get(name).and_then(|texts| serde_json::from_value(texts.clone()).ok()).unwrap_or_default()
    };
    let kind = serde_json::from_value(value.get("kind")?.clone()).ok()?;
    let mut error = Error::new(kind, value.get("doing")?.as_str()?);
    for cause in texts("causes") {
        error = error.because(cause);
    }
    for hint in texts("hints") {
        error = error.hint(hint);
    }
    if let Some(left) = value.get("left_behind").and_then(|left| serde_json::from_value(left.clone()).ok()) {
        error = error.left(left);
    }
    Some(error)
}

fn record(app: &App, cluster: &ClusterName) -> PathBuf {
    app.paths.state.join("armed").join(format!("{cluster}.jsonl"))
}
