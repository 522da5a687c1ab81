//! `gpucl run`: a cluster for one job, from nothing to nothing.

mod end;
mod keep;
mod outputs;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use self::end::{end, exists, what_is_left};
use self::keep::{Decision, Keep, Outcome, ask, decide, may_end};
use self::outputs::{Destination, Outputs, fetch};
use super::job::at_end::AtEnd;
use super::job::follow::{End, Options, detached, follow};
use super::job::secrets::sweep;
use super::job::stop::until_stopped;
use super::job::submit::{JobArgs, JobToSubmit, announce, ended};
use super::save;
use super::up::{self, Purpose};
use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::notice;
use crate::cli::output::print_error;
use crate::cli::signals::Ends;
use crate::cli::target::Target;
use crate::cluster::RayClient;
use crate::error::{Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::ray::Job;
use crate::spec::{Loaded, OutputPath, same_name};
use crate::state::Lock;
use crate::util::folder::Existing;

/// How long an interrupted job may take to end before what it left is fetched.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// The arguments of `run`.
#[derive(Debug, clap::Args)]
// `up` has a group of this name.
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    up: up::Args,
    /// What to keep at the end; default: nothing. After Ctrl-C on a terminal, it is what Enter answers
    #[arg(long, value_enum, value_name = "WHAT")]
    keep: Option<Keep>,
    /// A file or folder in the cluster's data folder to fetch, besides the `outputs` of the spec; repeatable
    #[arg(long, value_name = "PATH")]
    fetch: Vec<OutputPath>,
    /// The folder for the outputs; default: ./outputs/ and the cluster's name
    #[arg(long, value_name = "DIR")]
    outputs_to: Option<PathBuf>,
    /// Replace files that are there under the names of outputs, and merge into folders; otherwise, `run` refuses to begin
    #[arg(long)]
    replace_outputs: bool,
    /// Pass the job's colours and control sequences to the terminal; to a file or pipe, output is never changed
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    job: JobArgs,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    // What can be refused is refused before anything is made.
    let loaded = args.up.spec.load(app)?;
    let name = loaded.spec.name.clone();
    let outputs = wanted(loaded.spec.outputs.clone(), args.fetch)?;
    let existing = if args.replace_outputs { Existing::Merged } else { Existing::Refused };
    let destination = Destination::new(&name, args.outputs_to.as_deref(), existing);
    destination.check(&outputs)?;
    let mut job = JobToSubmit::of(args.job, app, &args.up.spec.allow_path)?;
    let existed = exists(app, &name)?;
    if existed && args.keep.is_none() {
        return Err(not_for_one_run(&name).into());
    }
    job.pack(app).await?;
    let mut run = Run {
        app,
        outputs,
        destination,
        keep: args.keep.unwrap_or(Keep::Nothing),
        ends: Ends::listen()?,
        reached: None,
        job: None,
        ended: None,
        fetched: Outputs::default(),
        code: exit_code::DONE,
        name,
    };
    let worked = run.work(&args.up, &loaded, job, args.raw).await;
    let outcome = match &worked {
        Ok(code) => {
            run.code = *code;
            Outcome::Done
        }
        Err(error) => {
            run.failed(error);
            if !may_end(error.kind(), existed) {
                return Ok(run.report(Keep::All, None));
            }
            Outcome::of(error.kind(), run.job.is_some())
        }
    };
    let mut keep = run.decide(outcome).await;
    if let Some(id) = run.job.clone() {
        if outcome == Outcome::Done || keep != Keep::All {
            if let Some(after) = run.bring(&id, outcome, keep).await {
                keep = run.decide(after).await;
            }
        } else {
            detached(app, &id, &run.flag());
        }
    }
    let summary = match end(app, &run.name, keep).await {
        Ok(summary) => summary,
        Err(error) => {
            run.failed(&error);
            None
        }
    };
    Ok(run.report(keep, summary))
}

/// The outputs of the spec and of the command line, each once.
fn wanted(mut outputs: Vec<OutputPath>, more: Vec<OutputPath>) -> Result<Vec<OutputPath>> {
    for path in more {
        if !outputs.contains(&path) {
            outputs.push(path);
        }
    }
    match same_name(&outputs) {
        Some((index, first)) => Err(usage(
            format!("fetch `{}`", outputs[index]),
            format!("`{first}` has the same name, and would be replaced by it"),
        )
        .hint("fetch the folders that they are in")),
        None => Ok(outputs),
    }
}

/// The refusal to take down a cluster that was there before, unless that was asked for.
fn not_for_one_run(name: &ClusterName) -> Error {
    usage(format!("bring up {name} for one run"), "a cluster of that name exists, and `run` would take it down")
        .hint("--keep all      # leaves it running after the job; `--keep hosts` ends Ray, `--keep nothing` removes it")
        .hint(format!("gpucl job submit -c {name} -- COMMAND      # runs a job on it"))
}

/// The error of a stage that Ctrl-C, or the end of the terminal, has ended.
fn interrupted(doing: impl Into<String>) -> Error {
    Error::new(ErrorKind::Cancelled, doing).because("it was interrupted")
}

/// A run, and how far it came.
struct Run<'a> {
    app: &'a App,
    name: ClusterName,
    outputs: Vec<OutputPath>,
    destination: Destination,
    /// What the command line says to keep.
    keep: Keep,
    ends: Ends,
    /// The cluster, once it is ready.
    reached: Option<(Target, RayClient)>,
    /// The job's id, once it was submitted.
    job: Option<String>,
    /// The job, once it has ended.
    ended: Option<Box<Job>>,
    fetched: Outputs,
    code: u8,
}

impl Run<'_> {
    /// Brings the cluster up, submits the job and follows it; returns its exit code.
    async fn work(&mut self, up: &up::Args, loaded: &Loaded, mut job: JobToSubmit, raw: bool) -> Result<u8> {
        let app = self.app;
        let up = up::bring_up(app, up, loaded, Purpose::Run).await?;
        up.gpus().iter().for_each(|table| app.ui.status(table));
        app.ui.status(up.summary());
        let doing = || format!("submit the job to {}", self.name);
        // Ctrl-C after the last operation of `up` does not fail it.
        if self.ends.forget().await {
            return Err(interrupted(doing()));
        }
        let target = Target::of(app, self.name.clone())?;
        let bring = async {
            let client = target.client(app).await?;
            job.upload(app, &client).await.map(|()| client)
        };
        let client = self.ends.unless(bring).await.ok_or_else(|| interrupted(doing()))??;
        job.deliver_secrets(app, &target).await?;
        let id = job.submit(&client).await?;
        announce(app, &id, &self.flag());
        self.job = Some(id.clone());
        let (target, client) = self.reached.insert((target, client));
        match follow(app, &self.name, client, &id, self.ends.wait(), Options { raw, leave_unread: false }).await? {
            End::Ended(job) => {
                notice::job_ended(app, &self.name, &job);
                sweep(app, target, client).await;
                let code = ended(app, client, &job).await;
                self.ended = Some(job);
                Ok(code)
            }
            End::Interrupted | End::Unread => Err(interrupted(format!("follow job {id}"))),
        }
    }

    /// Decides what is kept; asks where the command line does not decide.
    async fn decide(&mut self, outcome: Outcome) -> Keep {
        self.ends.forget().await;
        let asks = self.app.ui.asks() && !self.app.json() && !self.app.yes;
        match decide(outcome, self.keep, asks) {
            Decision::Keep(keep) => keep,
            Decision::Ask(default) => ask(self.app, &self.name, &mut self.ends, default).await,
        }
    }

    /// Fetches the outputs, and has the rest saved where the hosts go. The cluster's agent takes nothing down meanwhile.
    async fn bring(&mut self, id: &str, outcome: Outcome, keep: Keep) -> Option<Outcome> {
        if !exists(self.app, &self.name).unwrap_or(true) {
            return None;
        }
        let _lock = match Lock::take(&self.app.paths, &self.name, "run") {
            Ok(lock) => lock,
            Err(error) => {
                self.failed(&error);
                return (outcome == Outcome::Done).then_some(Outcome::Lost);
            }
        };
        let after = self.bring_outputs(id, outcome).await;
        if keep == Keep::Nothing { after.or(self.save(outcome).await) } else { after }
    }

    /// Fetches the outputs; a job that still runs is stopped first. Returns how that went if it decides anew what is
    /// kept.
    async fn bring_outputs(&mut self, id: &str, outcome: Outcome) -> Option<Outcome> {
        if self.outputs.is_empty() {
            return None;
        }
        let (app, is_done) = (self.app, outcome == Outcome::Done);
        let (target, client) = self.reached.as_ref()?;
        let (outputs, destination, fetched) = (&self.outputs, &self.destination, &mut self.fetched);
        let bring = async {
            if !is_done {
                // If it does not end, its outputs are fetched all the same.
                let stopped = match client.stop(id).await {
                    Ok(_) => until_stopped(app, client, id, STOP_LIMIT).await.map(|_| ()),
                    Err(error) => Err(error),
                };
                if let Err(error) = stopped {
                    app.ui.status(format_args!("warning: failed to {error}"));
                }
            }
            fetch(app, target, outputs, destination, fetched).await
        };
        let went = self.ends.unless(bring).await;
        for error in std::mem::take(&mut self.fetched.aside) {
            self.failed(&error);
        }
        let after = match went {
            Some(Ok(())) => {
                self.report_missing(is_done);
                return None;
            }
            Some(Err(error)) => {
                self.failed(&error);
                Outcome::Lost
            }
            None => {
                self.failed(&interrupted("fetch the outputs"));
                Outcome::Interrupted
            }
        };
        // Where the work was interrupted, that was decided before.
        is_done.then_some(after)
    }

    /// Has the hosts save what their spec says is saved before its end, which comes now. Returns as `bring_outputs`.
    async fn save(&mut self, outcome: Outcome) -> Option<Outcome> {
        let app = self.app;
        let (target, _) = self.reached.as_ref()?;
        let went = self.ends.unless(save::before_it_goes(app, target)).await;
        if let Some(job) = &self.ended {
            AtEnd::say(app, target, job).await;
        }
        let error = match went {
            Some(Ok(())) => return None,
            Some(Err(error)) => error,
            None => interrupted("save what `end` names"),
        };
        let after = if error.kind() == ErrorKind::Cancelled { Outcome::Interrupted } else { Outcome::Lost };
        self.failed(&error);
        // Where the work was interrupted, that was decided before.
        (outcome == Outcome::Done).then_some(after)
    }

    /// Outputs that are not there are an error after a job that succeeded.
    fn report_missing(&mut self, is_done: bool) {
        let missing: Vec<&str> = self.fetched.missing.iter().map(OutputPath::as_str).collect();
        if missing.is_empty() {
            return;
        }
        let missing = missing.join(", ");
        if is_done && self.code == exit_code::DONE {
            let error = Error::new(ErrorKind::Host, "fetch the outputs")
                .because(format!("not in the cluster's data folder: {missing}"))
                .hint("a job finds that folder's path in the variable GPUCL_DATA");
            self.failed(&error);
        } else {
            self.app.ui.status(format_args!("warning: not in the cluster's data folder: {missing}"));
        }
    }

    /// Prints an error; the first one gives the exit code, unless the job failed before.
    fn failed(&mut self, error: &Error) {
        let code = print_error(error, self.app.ui.format());
        if self.code == exit_code::DONE {
            self.code = code;
        }
    }

    /// Says what is left, as the last line; returns the exit code.
    fn report(&self, keep: Keep, summary: Option<String>) -> u8 {
        let left = what_is_left(self.app, &self.name);
        if self.app.json() {
            self.app.ui.json(&json!({
                "v": 1, "type": "run_ended", "cluster": self.name, "job": self.job, "exit_code": self.code,
                "fetched": self.fetched.fetched, "fetched_to": self.fetched.to, "missing": self.fetched.missing,
                "kept": keep.name(),
                "left": left.as_ref().map(|left| &left.items), "per_hour": left.as_ref().map(|left| &left.per_hour),
            }));
        }
        match left {
            Some(left) => self.app.ui.error_line(&left.describe(&self.name)),
            None => self.app.ui.status(summary.unwrap_or_else(|| format!("nothing of {} is left", self.name))),
        }
        self.code
    }

    /// The cluster, as a flag of commands that are shown.
    fn flag(&self) -> String {
        format!(" -c {}", self.name)
    }
}
