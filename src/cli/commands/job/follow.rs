//! `gpucl job logs`, and following a job, which `submit` does as well.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::json;
use tokio::signal::unix::Signal;

use super::at_end::AtEnd;
use super::secrets::sweep;
use super::show::{as_json, last_sentence};
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::signals::ctrl_c;
use crate::cli::target::Target;
use crate::cluster;
use crate::error::{Error, Result};
use crate::name::ClusterName;
use crate::ray::{Client, Follow, FollowOptions, Followed, Job};

/// The arguments of `job logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job's id
    id: String,
    /// Keep printing until the job ends
    #[arg(short, long)]
    follow: bool,
    /// Pass colours and control sequences to the terminal; to a file or pipe, output is never changed
    #[arg(long)]
    raw: bool,
}

/// How following ended.
pub(crate) enum End {
    /// The job ended.
    Ended(Box<Job>),
    /// stdout was closed by its reader.
    Unread,
    /// Ctrl-C.
    Interrupted,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let target = Target::choose(app)?;
    let client = target.client(app).await?;
    let id = args.id.as_str();
    if !args.follow {
        let text = match client.logs(id).await {
            Ok(text) => text,
            Err(error) => return Err(super::with_near_id(error, &client, id).await.into()),
        };
        if app.json() {
            app.ui.json(&json!({"v": 1, "type": "job_log", "id": id, "text": text}));
        } else {
            let mut shown = app.ui.program(args.raw);
            shown.piece(&text);
            shown.end();
        }
        return Ok(exit_code::DONE);
    }
    let options = Options { raw: args.raw, leave_unread: true };
    let end = match follow(app, &target.name, &client, id, pressed(&mut ctrl_c()?), options).await {
        Ok(end) => end,
        Err(error) => return Err(super::with_near_id(error, &client, id).await.into()),
    };
    match end {
        End::Ended(job) => {
            sweep(app, &target, &client).await;
            if app.json() {
                app.ui.json(&as_json(&job));
            }
            app.ui.status(last_sentence(&client, &job).await);
            AtEnd::say(app, &target, &job).await;
            Ok(exit_code::DONE)
        }
        End::Unread => Ok(exit_code::DONE),
        End::Interrupted => Ok(detached(app, id, &super::cluster_flag(app))),
    }
}

/// Waits for a signal.
pub(super) async fn pressed(signal: &mut Signal) {
    signal.recv().await;
}

/// How a log is followed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Pass control sequences to the terminal.
    pub(crate) raw: bool,
    /// Also end when stdout is closed; `submit` and `run` continue, for the exit code.
    pub(crate) leave_unread: bool,
}

/// How often it is looked whether the cluster is still there.
const GONE_EVERY: Duration = Duration::from_secs(5);

/// Waits until a cluster is there no more, as far as this machine knows: its agent or another command has taken it down.
async fn gone(app: &App, cluster: &ClusterName) -> Error {
    loop {
        tokio::time::sleep(GONE_EVERY).await;
        if matches!(cluster::status(&app.paths, cluster), Ok(None)) {
            return cluster::unknown(&app.paths, cluster);
        }
    }
}

/// Follows a job's log to stdout, until the job ends, or `interrupted` does, or the cluster is gone.
///
/// # Errors
/// If the cluster is gone, or the job is lost.
pub(crate) async fn follow(
    app: &App,
    cluster: &ClusterName,
    client: &Client,
    id: &str,
    interrupted: impl Future<Output = ()>,
    options: Options,
) -> Result<End> {
    let json = app.json();
    let mut whole_line = true;
    let mut read = true;
    let mut shown = app.ui.program(options.raw);
    let mut on = |piece: Follow<'_>| {
        if let Follow::Note(note) = piece {
            app.ui.status(note);
        }
        let is_read = !read
            || match piece {
                Follow::Text(text) if json => {
                    app.ui.read_json(&json!({"v": 1, "type": "job_log", "id": id, "text": text}))
                }
                Follow::Note(note) if json => app.ui.read_json(&json!({"v": 1, "type": "note", "message": note})),
                Follow::Text(text) => {
                    whole_line = text.ends_with('\n');
                    shown.piece(text)
                }
                Follow::Note(_) => true,
            };
        if !is_read {
            read = false;
            if options.leave_unread {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    };
    let end = tokio::select! {
        followed = client.follow(id, FollowOptions::default(), &mut on) => match followed? {
            Followed::Ended(job) => End::Ended(job),
            Followed::Left => End::Unread,
        },
        () = interrupted => End::Interrupted,
        error = gone(app, cluster) => return Err(error),
    };
    shown.end();
    if !whole_line && !json && std::io::stdout().is_terminal() {
        app.ui.data("");
    }
    Ok(end)
}

/// Says that the job keeps running, and how to follow or stop it; `flag` names the cluster.
pub(crate) fn detached(app: &App, id: &str, flag: &str) -> u8 {
    if app.json() {
        app.ui.json(&json!({"v": 1, "type": "detached", "id": id}));
    }
    app.ui.status(format_args!(
        "detached: job {id} continues\n  follow it: gpucl job logs {id} --follow{flag}\n  stop it:   gpucl job stop {id}{flag}"
    ));
    exit_code::INTERRUPTED
}
