//! `gpucl job submit`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::signal::unix::Signal;

use super::follow::{End, Options, detached, follow, pressed};
use super::show::{as_json, sentence};
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::signals::ctrl_c;
use crate::cli::target::Target;
use crate::error::{Error, ErrorKind, Result};
use crate::ray::{self, Client, Job, OnProgress, Package, RuntimeEnv, SubmitRequest, UploadOutcome, WorkingDir};
use crate::util::human;

/// How often a long upload reports its progress.
const SAY_EVERY: Duration = Duration::from_secs(2);

/// The arguments of `job submit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// Print the id and exit, instead of following the job
    #[arg(long)]
    no_wait: bool,
    /// Pass the job's colours and control sequences to the terminal; to a file or pipe, output is never changed
    #[arg(long, conflicts_with = "no_wait")]
    raw: bool,
}

/// The arguments that describe a job; `run` has them too.
#[derive(Debug, clap::Args)]
pub(crate) struct JobArgs {
    /// The folder that the command runs in; it is packed, uploaded, and unpacked on the cluster
    #[arg(long, value_name = "DIR")]
    working_dir: Option<PathBuf>,
    /// The runtime environment: a YAML or JSON file, or inline JSON
    #[arg(long, value_name = "FILE_OR_JSON")]
    runtime_env: Option<String>,
    /// The job's id; default: a new one
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// CPUs that the command itself takes; if any, it does not run on the head
    #[arg(long, value_name = "N", value_parser = amount)]
    entrypoint_cpus: Option<f64>,
    /// GPUs that the command itself takes
    #[arg(long, value_name = "N", value_parser = amount)]
    entrypoint_gpus: Option<f64>,
    /// An environment variable of the job, which overrides the runtime environment's; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// Metadata of the job; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    // Check the command line before the cluster is contacted.
    let mut job = JobToSubmit::of(args.job, &app.here)?;
    let client = Target::choose(app)?.client(app).await?;
    let mut interrupts = ctrl_c()?;
    let bring = async {
        job.pack(app).await?;
        job.upload(app, &client).await
    };
    or_interrupted(&mut interrupts, bring).await?;
    let id = job.submit(&client).await?;
    let flag = super::cluster_flag(app);
    announce(app, &id, &flag);
    if args.no_wait {
        if !app.json() {
            app.ui.data(id);
        }
        return Ok(exit_code::DONE);
    }
    let options = Options { raw: args.raw, leave_unread: false };
    match follow(app, &client, &id, pressed(&mut interrupts), options).await? {
        End::Ended(job) => Ok(ended(app, &job)),
        End::Interrupted | End::Unread => Ok(detached(app, &id, &flag)),
    }
}

/// Reports how a job ended; returns the exit code.
pub(crate) fn ended(app: &App, job: &Job) -> u8 {
    if app.json() {
        app.ui.json(&as_json(job));
    }
    app.ui.status(sentence(job));
    ray::exit_code(job.status, job.driver_exit_code)
}

/// A job whose description was checked; its working folder is packed, then uploaded, then it is submitted.
pub(crate) struct JobToSubmit {
    request: SubmitRequest,
    environment: RuntimeEnv,
    working_dir: Option<WorkingDir>,
    package: Option<Package>,
}

impl JobToSubmit {
    /// Checks the arguments; paths in them are relative to `here`. Contacts nobody.
    ///
    /// # Errors
    /// If the id, the runtime environment or the working folder cannot be used.
    pub(crate) fn of(args: JobArgs, here: &Path) -> Result<Self> {
        if let Some(id) = &args.id {
            ray::check_id(id)?;
        }
        let mut environment = match &args.runtime_env {
            Some(text_or_path) => RuntimeEnv::read(text_or_path, here)?,
            None => RuntimeEnv::default(),
        };
        for (name, value) in &args.env {
            environment.set_variable(name, value)?;
        }
        let working_dir = environment.take_working_dir(args.working_dir.as_deref(), here)?;
        let request = SubmitRequest {
            entrypoint: ray::shell_line(&args.command),
            submission_id: args.id,
            metadata: BTreeMap::from_iter(args.metadata),
            entrypoint_num_cpus: args.entrypoint_cpus,
            entrypoint_num_gpus: args.entrypoint_gpus,
            ..SubmitRequest::default()
        };
        Ok(Self { request, environment, working_dir, package: None })
    }

    /// Packs the working folder, if there is one.
    ///
    /// # Errors
    /// If it cannot be read, or is too large.
    pub(crate) async fn pack(&mut self, app: &App) -> Result<()> {
        let Some(working_dir) = self.working_dir.take() else { return Ok(()) };
        let packing = tokio::task::spawn_blocking(move || match working_dir {
            WorkingDir::Folder(folder, excludes) => Package::of_folder(&folder, &excludes),
            WorkingDir::Zip(path) => Package::of_zip(&path),
        });
        let package = packing
            .await
            .map_err(|error| Error::new(ErrorKind::Internal, "pack the working folder").caused_by(&error))??;
        for skipped in package.skipped() {
            app.ui.status(format_args!("left out {skipped}"));
        }
        self.package = Some(package);
        Ok(())
    }

    /// Uploads what was packed.
    ///
    /// # Errors
    /// If Ray does not answer or refuses it.
    pub(crate) async fn upload(&mut self, app: &App, client: &Client) -> Result<()> {
        let Some(package) = self.package.take() else { return Ok(()) };
        self.environment.set_working_dir(upload(app, client, &package).await?);
        Ok(())
    }

    /// Submits it; returns its id.
    ///
    /// # Errors
    /// If Ray does not answer or refuses it.
    pub(crate) async fn submit(mut self, client: &Client) -> Result<String> {
        self.request.runtime_env = self.environment.into_fields();
        client.submit(self.request).await
    }
}

/// Uploads the working folder; returns its URI.
async fn upload(app: &App, client: &Client, package: &Package) -> Result<String> {
    let outcome = client.upload(package, Some(progress(app))).await?;
    let size = human::bytes(package.bytes().len() as u64);
    let files =
        if package.files() > 0 { format!("{}, ", human::count(package.files(), "file")) } else { String::new() };
    let what = match outcome {
        UploadOutcome::Uploaded => "uploaded",
        UploadOutcome::Present => "unchanged, not uploaded again",
    };
    app.ui.status(format_args!("working folder {what}: {files}{size}"));
    if app.json() {
        app.ui.json(&json!({
            "v": 1, "type": "working_dir", "uri": package.uri(), "bytes": package.bytes().len(), "files": package.files(),
            "uploaded": outcome == UploadOutcome::Uploaded, "left_out": package.skipped(),
        }));
    }
    Ok(package.uri())
}

/// Reports the progress of a long upload, every few seconds.
fn progress(app: &App) -> OnProgress {
    let ui = app.ui;
    let reported = Mutex::new(Instant::now());
    Arc::new(move |sent, total| {
        let Ok(mut reported) = reported.lock() else { return };
        if reported.elapsed() >= SAY_EVERY && sent < total {
            *reported = Instant::now();
            ui.status(format_args!("uploading: {} of {}", human::bytes(sent), human::bytes(total)));
        }
    })
}

/// Reports a submission; `flag` names the cluster in the commands that are shown.
pub(crate) fn announce(app: &App, id: &str, flag: &str) {
    if app.json() {
        app.ui.json(&json!({"v": 1, "type": "job_submitted", "id": id}));
    }
    app.ui.status(format_args!(
        "job {id} submitted\n  follow it: gpucl job logs {id} --follow{flag}\n  stop it:   gpucl job stop {id}{flag}"
    ));
}

/// Runs `work`; Ctrl-C before the submission leaves nothing behind, and the error says so.
async fn or_interrupted<T>(interrupts: &mut Signal, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        done = work => done,
        _ = interrupts.recv() => {
            Err(Error::new(ErrorKind::Cancelled, "submit the job").because("Ctrl-C; no job was submitted"))
        }
    }
}

fn pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

fn amount(text: &str) -> std::result::Result<f64, String> {
    let amount: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if amount.is_finite() && amount >= 0.0 { Ok(amount) } else { Err("it must be 0 or more".to_owned()) }
}
