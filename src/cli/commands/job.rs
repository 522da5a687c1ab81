//! `gpucl job`.

pub(super) mod at_end;
pub(super) mod follow;
pub(super) mod ray_flags;
pub(super) mod secrets;
pub(super) mod show;
pub(super) mod stop;
pub(super) mod submit;
pub(super) mod upload;

use crate::cli::app::App;
use crate::error::{Error, ErrorKind};
use crate::ray::Client;
use crate::util::near;

/// The commands below `job`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Run a command on the cluster and follow it; exits with the command's exit code
    Submit(Box<submit::Args>),
    /// List the jobs, oldest first
    List(show::ListArgs),
    /// Show one job, and why it waits or failed
    Status(show::StatusArgs),
    /// Print a job's log
    Logs(follow::Args),
    /// Stop a job, and wait until it has stopped
    Stop(stop::Args),
}

pub(crate) async fn run(app: &App, command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Submit(args) => submit::run(app, *args).await,
        Command::List(args) => Ok(show::list(app, args).await?),
        Command::Status(args) => Ok(show::status(app, args).await?),
        Command::Logs(args) => follow::run(app, args).await,
        Command::Stop(args) => stop::run(app, args).await,
    }
}

/// Adds the id that was probably meant to the error of an unknown id.
async fn with_near_id(error: Error, client: &Client, id: &str) -> Error {
    if error.kind() != ErrorKind::NotFound {
        return error;
    }
    let jobs = client.jobs().await.unwrap_or_default();
    match near::nearest(id, jobs.iter().map(crate::ray::Job::id)) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint("list the jobs: `gpucl job list`"),
    }
}

/// The cluster flag for commands in hints; empty if no cluster was named.
pub(super) fn cluster_flag(app: &App) -> String {
    app.cluster.as_deref().map(|name| format!(" -c {name}")).unwrap_or_default()
}
