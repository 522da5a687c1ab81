//! `gpucl job stop`.

use std::time::Duration;

use tokio::time::Instant;

use super::secrets::sweep;
use super::show::{as_json, sentence};
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::target::Target;
use crate::error::{Error, ErrorKind, Result};
use crate::ray::{Client, Job, JobStatus};
use crate::util::human;

const POLL_EVERY: Duration = Duration::from_millis(500);
const SAY_EVERY: Duration = Duration::from_secs(5);
/// How long a job may be starting, and hear of the request by itself, before it counts as one that waits for resources.
const CANCEL_AFTER: Duration = Duration::from_secs(3);

/// The arguments of `job stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job's id
    id: String,
    /// Seconds to wait until it has stopped
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let target = Target::choose(app)?;
    let client = target.client(app).await?;
    let id = args.id.as_str();
    let job = match client.job(id).await {
        Ok(job) => job,
        Err(error) => return Err(super::with_near_id(error, &client, id).await.into()),
    };
    if job.status.is_terminal() {
        app.ui.status(format_args!("nothing to stop: {}", sentence(&job)));
        return Ok(end(app, &job));
    }
    client.stop(id).await?;
    tokio::select! {
        stopped = until_stopped(app, &client, id, Duration::from_secs(args.timeout)) => {
            let job = stopped?;
            sweep(app, &target, &client).await;
            app.ui.status(sentence(&job));
            Ok(end(app, &job))
        }
        _ = tokio::signal::ctrl_c() => Err(Error::new(ErrorKind::Cancelled, format!("wait until job {id} is stopped"))
            .because("Ctrl-C; Ray is still stopping it")
            .hint(format!("see `gpucl job status {id}{}`", super::cluster_flag(app))).into()),
    }
}

/// Waits until a job that was asked to stop has ended.
pub(crate) async fn until_stopped(app: &App, client: &Client, id: &str, limit: Duration) -> Result<Job> {
    let began = Instant::now();
    let mut say = SAY_EVERY;
    let mut is_cancelled = false;
    loop {
        let job = client.job(id).await?;
        if job.status.is_terminal() {
            return Ok(job);
        }
        let waited = began.elapsed();
        if job.status == JobStatus::Pending && waited >= CANCEL_AFTER && !is_cancelled {
            is_cancelled = true;
            match client.cancel(id).await {
                // It has ended, or runs now and has heard of the request.
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => continue,
            }
        }
        if waited >= limit {
            let why = format!("it is still {} after {}", job.status.as_str(), human::short_duration(limit));
            return Err(Error::new(ErrorKind::Timeout, format!("stop job {id}"))
                .because(why)
                .hint(format!("Ray is still stopping it; see `gpucl job status {id}{}`", super::cluster_flag(app))));
        }
        if waited >= say {
            say += SAY_EVERY;
            let (waited, limit) = (human::short_duration(waited), human::short_duration(limit));
            app.ui
                .status(format_args!("waiting until job {id} has ended: {}, {waited} of {limit}", job.status.as_str()));
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

fn end(app: &App, job: &Job) -> u8 {
    if app.json() {
        app.ui.json(&as_json(job));
    }
    exit_code::DONE
}
