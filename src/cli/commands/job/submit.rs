//! `gpucl job submit`.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};

use serde_json::json;
use tokio::signal::unix::Signal;

use super::at_end::AtEnd;
use super::follow::{End, Options, detached, follow, pressed};
use super::ray_flags::{Refused, amount, pair, resources, texts};
use super::secrets::{JobSecrets, sweep};
use super::show::{as_json, last_sentence};
use super::upload::{Packed, pack, upload};
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::signals::ctrl_c;
use crate::cli::target::Target;
use crate::error::{Error, ErrorKind, Result};
use crate::ray::{self, Client, Job, Module, RuntimeEnv, SubmitRequest, WorkingDir};
use crate::spec::Memory;
use crate::util::fence::Fence;
use crate::util::{random, variable};

/// The arguments of `job submit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// Let the file of a runtime environment name files of this folder as well as of the working folder; repeatable
    #[arg(long, value_name = "DIR")]
    allow_path: Vec<PathBuf>,
    /// Print the id and exit, instead of following the job
    #[arg(long)]
    no_wait: bool,
    /// Pass the job's colours and control sequences to the terminal; to a file or pipe, output is never changed
    #[arg(long, conflicts_with = "no_wait")]
    raw: bool,
    #[command(flatten)]
    refused: Refused,
}

/// The arguments that describe a job; `run` has them too.
#[derive(Debug, clap::Args)]
pub(crate) struct JobArgs {
    /// The folder that the command runs in; it is packed, uploaded, and unpacked on the cluster; or the URL of a package
    #[arg(long, value_name = "DIR")]
    working_dir: Option<PathBuf>,
    /// The runtime environment: a YAML or JSON file, or inline JSON
    #[arg(long, value_name = "FILE_OR_JSON")]
    runtime_env: Option<String>,
    /// The runtime environment as inline JSON
    #[arg(long, value_name = "JSON", conflicts_with = "runtime_env")]
    runtime_env_json: Option<String>,
    /// The job's id; default: a new one
    #[arg(long, visible_aliases = ["id", "job-id"], value_name = "ID")]
    submission_id: Option<String>,
    /// CPUs that the command itself takes; if any, it does not run on the head
    #[arg(long, visible_alias = "entrypoint-cpus", value_name = "N", value_parser = amount)]
    entrypoint_num_cpus: Option<f64>,
    /// GPUs that the command itself takes
    #[arg(long, visible_alias = "entrypoint-gpus", value_name = "N", value_parser = amount)]
    entrypoint_num_gpus: Option<f64>,
    /// Memory that the command itself takes, in bytes or as `8GiB`
    #[arg(long, value_name = "BYTES")]
    entrypoint_memory: Option<Memory>,
    /// Custom resources that the command itself takes, such as `{"disk": 1}`
    #[arg(long, value_name = "JSON", value_parser = resources)]
    entrypoint_resources: Option<BTreeMap<String, f64>>,
    /// Labels of the node that the command itself runs on, such as `{"gpucl.dev/node": "worker-0"}`
    #[arg(long, value_name = "JSON", value_parser = texts)]
    entrypoint_label_selector: Option<BTreeMap<String, String>>,
    /// An environment variable of the job, which overrides the runtime environment's; the value is taken as it is, `$`
    /// included; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// A value stored by `gpucl secret set`, as an environment variable of the job, its tasks and actors; Ray stores
    /// only a random id; repeatable
    #[arg(long, value_name = "NAME[=ENV_NAME]", value_parser = variable::secret)]
    secret: Vec<(String, String)>,
    /// Metadata of the job; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// Metadata of the job as JSON; --metadata overrides it
    #[arg(long, value_name = "JSON", value_parser = texts)]
    metadata_json: Option<BTreeMap<String, String>>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    // Check the command line before the cluster is contacted.
    args.refused.check()?;
    let mut job = JobToSubmit::of(args.job, app, &args.allow_path)?;
    let target = Target::choose(app)?;
    let client = target.client(app).await?;
    sweep(app, &target, &client).await;
    let mut interrupts = ctrl_c()?;
    let bring = async {
        job.pack(app).await?;
        job.upload(app, &client).await
    };
    or_interrupted(&mut interrupts, bring).await?;
    job.deliver_secrets(app, &target).await?;
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
    match follow(app, &target.name, &client, &id, pressed(&mut interrupts), options).await? {
        End::Ended(job) => {
            sweep(app, &target, &client).await;
            let code = ended(app, &client, &job).await;
            AtEnd::say(app, &target, &job).await;
            Ok(code)
        }
        End::Interrupted | End::Unread => Ok(detached(app, &id, &flag)),
    }
}

/// Reports how a job ended; returns the exit code.
pub(crate) async fn ended(app: &App, client: &Client, job: &Job) -> u8 {
    if app.json() {
        app.ui.json(&as_json(job));
    }
    app.ui.status(last_sentence(client, job).await);
    ray::exit_code(job.status, job.driver_exit_code)
}

/// A job whose description was checked; its working folder and modules are packed, then uploaded, then it is submitted.
pub(crate) struct JobToSubmit {
    request: SubmitRequest,
    environment: RuntimeEnv,
    working_dir: Option<WorkingDir>,
    modules: Vec<Module>,
    packed: Vec<Packed>,
    secrets: JobSecrets,
}

impl JobToSubmit {
    /// Checks the arguments, and reads the secrets. Contacts nobody. `allowed` are the folders whose files a runtime
    /// environment may name beside those of the working folder.
    ///
    /// # Errors
    /// If the id, the runtime environment, the working folder or a module cannot be used.
    pub(crate) fn of(args: JobArgs, app: &App, allowed: &[PathBuf]) -> Result<Self> {
        let here: &Path = &app.here;
        if let Some(id) = &args.submission_id {
            ray::check_id(id)?;
        }
        let fence = Fence::new(here, "the working folder", allowed)?.sparing(&app.user_environment().home);
        let mut environment = match (&args.runtime_env, &args.runtime_env_json) {
            (Some(text_or_path), _) => RuntimeEnv::read(text_or_path, &fence)?,
            (None, Some(text)) => RuntimeEnv::parse(text, here)?,
            (None, None) => RuntimeEnv::default(),
        };
        for (key, near) in environment.unknown_keys() {
            let meant = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            app.ui.status(format_args!("note: Ray knows no key `{key}` of a runtime environment{meant}"));
        }
        for (name, value) in &args.env {
            environment.set_variable(name, value)?;
        }
        let secrets = JobSecrets::read(app, &args.secret, &environment)?;
        let working_dir = environment.take_working_dir(args.working_dir.as_deref(), here)?;
        let modules = environment.local_modules(here)?;
        if let Some(hint) = misunderstood(&args.command, here, working_dir.is_some() || environment.has_working_dir()) {
            app.ui.status(format_args!("note: {hint}"));
        }
        let mut metadata = args.metadata_json.unwrap_or_default();
        metadata.extend(args.metadata);
        let request = SubmitRequest {
            entrypoint: ray::shell_line(&args.command),
            submission_id: args.submission_id,
            metadata,
            entrypoint_num_cpus: args.entrypoint_num_cpus,
            entrypoint_num_gpus: args.entrypoint_num_gpus,
            entrypoint_memory: args.entrypoint_memory.map(|memory| memory.0),
            entrypoint_resources: args.entrypoint_resources.unwrap_or_default(),
            entrypoint_label_selector: args.entrypoint_label_selector.unwrap_or_default(),
            ..SubmitRequest::default()
        };
        Ok(Self { request, environment, working_dir, modules, packed: Vec::new(), secrets })
    }

    /// Packs the working folder and the modules.
    ///
    /// # Errors
    /// If one cannot be read, or is too large.
    pub(crate) async fn pack(&mut self, app: &App) -> Result<()> {
        self.packed = pack(app, self.working_dir.take(), std::mem::take(&mut self.modules)).await?;
        Ok(())
    }

    /// Uploads what was packed.
    ///
    /// # Errors
    /// If Ray does not answer or refuses it.
    pub(crate) async fn upload(&mut self, app: &App, client: &Client) -> Result<()> {
        for packed in std::mem::take(&mut self.packed) {
            let uri = upload(app, client, &packed).await?;
            match packed.module {
                Some(at) => self.environment.set_module(at, uri),
                None => self.environment.set_working_dir(uri),
            }
        }
        Ok(())
    }

    /// Puts the job's secrets on the hosts.
    ///
    /// # Errors
    /// When a host cannot be written.
    pub(crate) async fn deliver_secrets(&mut self, app: &App, target: &Target) -> Result<()> {
        if self.secrets.is_empty() {
            return Ok(());
        }
        let id = match &self.request.submission_id {
            Some(id) => id.clone(),
            None => format!("job-{}", random::letters(8)?),
        };
        self.request.submission_id = Some(id.clone());
        self.secrets.deliver(app, target, &id, &mut self.environment).await
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

/// What was probably meant otherwise by a command: it is one word with spaces, or it names a file of this folder that
/// the job will not have.
fn misunderstood(command: &[String], here: &Path, has_folder: bool) -> Option<String> {
    if let [whole] = command
        && whole.trim().contains(char::is_whitespace)
    {
        return Some(format!(
            "`{whole}` is taken for the name of one program; leave the quotes out, or, for a shell: -- sh -c '{whole}'"
        ));
    }
    let lies_here = |word: &&String| {
        let is_path = Path::new(word.as_str()).extension().is_some() && !word.starts_with(['-', '/', '~']);
        is_path && here.join(word.as_str()).is_file()
    };
    let file = command.iter().find(lies_here).filter(|_| !has_folder)?;
    Some(format!("{file} is in this folder, but not in the job's: `--working-dir .` sends the folder with it"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_otherwise_is_said() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("train.py"), "").unwrap();
        let says = |words: &[&str], has_folder: bool| {
            let command: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            misunderstood(&command, folder.path(), has_folder).unwrap_or_default()
        };
        assert!(says(&["python", "train.py"], false).contains("`--working-dir .`"));
        assert!(says(&["python train.py"], true).contains("sh -c 'python train.py'"));
        for (words, has_folder) in [
            (&["python", "train.py"][..], true),
            (&["python", "other.py"], false),
            (&["python", "-c", "print(1)"], false),
            (&["true"], false),
            (&["sh", "-c", "python train.py"], true),
        ] {
            assert_eq!(says(words, has_folder), "", "{words:?}");
        }
    }
}
