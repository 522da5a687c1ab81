//! The scheduled `up`: a background process that waits for its hosts, started and followed by this one.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use super::app::App;
use super::run::Ended;
use super::spec_args::SpecArgs;
use crate::agent::ScheduledUp;
use crate::engine::{Cancel, Urgency};
use crate::error::{Doing as _, Error, ErrorKind, LeftBehind, Result};
use crate::event::{Bus, Event, EventKind, WorkerGpus};
use crate::name::ClusterName;
use crate::util::child;
use crate::util::fs::create_private_dir;
use crate::util::human;
use crate::util::process::Identity;

/// How often the record is polled.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// How many bytes of the record are read at once.
const PIECE: u64 = 64 << 10;
/// A longer line, in bytes, is not gpucl's; the longest are errors with the output of a program on a host.
const LONGEST_LINE: usize = 4 << 20;

/// The scheduled `up` of this cluster, if one is already waiting.
pub(crate) fn waiting(app: &App, cluster: &ClusterName) -> Option<ScheduledUp> {
    ScheduledUp::of(&app.paths.cluster(cluster))
}

/// Starts one in the background; it outlives this process.
pub(crate) fn start(
    app: &App,
    cluster: &ClusterName,
    spec: &SpecArgs,
    new_spec: bool,
    update_files: bool,
    wait_capacity: Option<Duration>,
) -> Result<Identity> {
    let doing = || format!("start the process that waits for the hosts of {cluster}");
    let record = record(app, cluster);
    record.parent().map_or(Ok(()), create_private_dir).doing(ErrorKind::State, doing)?;
    let out = fs_err::File::create(&record).doing(ErrorKind::State, doing)?;
    let program = std::env::current_exe().doing(ErrorKind::Internal, doing)?;
    let arguments = arguments(app, cluster, spec, new_spec, update_files, wait_capacity);
    // It calls the cloud as this process does, so it inherits the environment; programs on hosts get none of it.
    let child = child::command(program)
        // It is gpucl itself, and the spec's path is relative to this folder.
        .current_dir(&app.here)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(out.into_file())
        .stderr(Stdio::null())
        .spawn()
        .doing(ErrorKind::Host, doing)?;
    Identity::of(child.id()).ok_or_else(|| Error::new(ErrorKind::Host, doing()).because("it exited at once"))
}

/// Its command line: every argument of this command that concerns the spec.
fn arguments(
    app: &App,
    cluster: &ClusterName,
    spec: &SpecArgs,
    new_spec: bool,
    update_files: bool,
    wait_capacity: Option<Duration>,
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> =
        ["agent", "--cluster", cluster.as_str(), "--output", "json", "--yes", "--scheduled-up"]
            .map(OsString::from)
            .into();
    arguments.push(spec.spec.clone().into());
    for folder in &spec.allow_path {
        // As one argument: a folder may begin with a hyphen.
        let mut argument = OsString::from("--allow-path=");
        argument.push(folder);
        arguments.push(argument);
    }
    arguments.extend(spec.allow_mount.iter().map(|path| OsString::from(format!("--allow-mount={path}"))));
    if new_spec {
        arguments.push("--new-spec".into());
    }
    if update_files {
        arguments.push("--update-files".into());
    }
    if let Some(wait) = wait_capacity {
        arguments.extend(["--wait-capacity".into(), human::duration(wait).into()]);
    }
    if let Some(folder) = app.data_dirs.first().filter(|_| app.data_dirs.len() > 2) {
        arguments.extend(["--data-dir".into(), folder.clone().into()]);
    }
    arguments
}

/// Shows its events until it ends. Ctrl-C ends only the watching.
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
    let mut rest = Vec::new();
    let mut output = StartOutput::default();
    loop {
        // Checked before reading, so that its last lines are read after it has ended.
        let is_over = !identity.is_alive();
        // In chunks: neither the record nor a line of it has to fit into memory.
        let mut got = 1;
        while got > 0 {
            got = file.by_ref().take(PIECE).read_to_end(&mut rest).doing(ErrorKind::State, doing)?;
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                output.take(String::from_utf8_lossy(&line).trim_end(), events);
            }
            if rest.len() > LONGEST_LINE {
                return Err(Error::new(ErrorKind::State, doing()).because(format!(
                    "{} has a line of more than {} MiB",
                    path.display(),
                    LONGEST_LINE >> 20
                )));
            }
        }
        if is_over {
            return output.end(cluster);
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_EVERY) => {}
            () = cancel.at_least(Urgency::Finish) => {
                return Err(Error::new(ErrorKind::Cancelled, format!("watch the start of {cluster}"))
                    .because("you stopped watching; the start continues in the background")
                    .hint(format!("gpucl up -c {cluster}      # watch again"))
                    .hint(format!("gpucl down -c {cluster}    # cancel it")));
            }
        }
    }
}

/// Its outcome, as far as its output has reported it.
#[derive(Debug, Default)]
struct StartOutput {
    ended: Option<Ended>,
    error: Option<Error>,
    gpus: Vec<WorkerGpus>,
}

impl StartOutput {
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
                .because("the process that waited for its hosts ended without a result")
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
    app.paths.state.join("scheduled_up").join(format!("{cluster}.jsonl"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::args::Arguments;
    use crate::state::Paths;

    #[test]
    fn a_scheduled_up_may_send_files_that_the_user_allowed() {
        let folder = PathBuf::from("/nowhere");
        let paths = Paths {
            config: folder.clone(),
            state: folder.clone(),
            data: folder.clone(),
            cache: folder.clone(),
            runtime: folder,
        };
        let app = App::for_test(paths);
        let spec = SpecArgs {
            spec: "lab.yaml".into(),
            allow_path: vec!["../keys".into(), "-odd folder".into()],
            allow_mount: vec!["/etc/ssl".into()],
            accept: None,
        };
        let given = arguments(&app, &"demo".parse().unwrap(), &spec, true, true, Some(Duration::from_secs(60)));
        let parsed = Arguments::try_parse_from(std::iter::once("gpucl".into()).chain(given)).unwrap();
        let text = format!("{parsed:?}");
        assert!(
            text.contains("scheduled_up: Some(\"lab.yaml\"), allow_path: [\"../keys\", \"-odd folder\"]"),
            "{text}"
        );
        assert!(text.contains("allow_mount: [\"/etc/ssl\"]"), "{text}");
        assert!(text.contains("new_spec: true, update_files: true, wait_capacity: Some(60s)"), "{text}");
    }
}
