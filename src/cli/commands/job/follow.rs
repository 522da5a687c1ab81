//! `gpucl job logs`, and the following of a job that `submit` does as well.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;

use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::show::{as_json, sentence};
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::target::Target;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::ray::{Client, Follow, FollowOptions, Followed, Job};

/// The arguments of `job logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job's id
    id: String,
    /// Go on printing until the job ends
    #[arg(short, long)]
    follow: bool,
    /// Let the terminal have colours and all else as it comes; to a file or a program it always goes so
    #[arg(long)]
    raw: bool,
}

/// How following ended.
pub(super) enum End {
    /// The job ended.
    Ended(Box<Job>),
    /// Nobody reads our output any more.
    Unread,
    /// Ctrl-C.
    Interrupted,
}

pub(crate) async fn run(app: &App, args: Args) -> Result<u8> {
    let client = Target::choose(app)?.client(app).await?;
    let id = args.id.as_str();
    if !args.follow {
        let text = match client.logs(id).await {
            Ok(text) => text,
            Err(error) => return Err(super::with_near_id(error, &client, id).await),
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
    let end = match follow(app, &client, id, &mut interrupts()?, Options { raw: args.raw, leave_unread: true }).await {
        Ok(end) => end,
        Err(error) => return Err(super::with_near_id(error, &client, id).await),
    };
    match end {
        End::Ended(job) => {
            if app.json() {
                app.ui.json(&as_json(&job));
            }
            app.ui.status(sentence(&job));
            Ok(exit_code::DONE)
        }
        End::Unread => Ok(exit_code::DONE),
        End::Interrupted => Ok(detached(app, id)),
    }
}

/// How a log is followed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// The terminal has it as it comes.
    pub(super) raw: bool,
    /// It also ends when nobody reads stdout any more; a `submit` goes on then, for the exit status.
    pub(super) leave_unread: bool,
}

/// Follows a job's log to stdout, until the job ends or Ctrl-C.
pub(super) async fn follow(
    app: &App,
    client: &Client,
    id: &str,
    interrupts: &mut Signal,
    options: Options,
) -> Result<End> {
    let json = app.json();
    let mut whole_line = true;
    let mut read = true;
    let mut shown = app.ui.program(options.raw);
    let mut on = |said: Follow<'_>| {
        if let Follow::Note(note) = said {
            app.ui.status(note);
        }
        let is_read = !read
            || match said {
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
        _ = interrupts.recv() => End::Interrupted,
    };
    shown.end();
    if !whole_line && !json && std::io::stdout().is_terminal() {
        app.ui.data("");
    }
    Ok(end)
}

/// Listens for Ctrl-C from now on: what comes before it is waited for is not lost.
pub(super) fn interrupts() -> Result<Signal> {
    signal(SignalKind::interrupt()).doing(ErrorKind::Internal, || "listen for Ctrl-C".to_owned())
}

/// Says that the job goes on without us, and how to come back to it.
pub(super) fn detached(app: &App, id: &str) -> u8 {
    let flag = super::cluster_flag(app);
    if app.json() {
        app.ui.json(&json!({"v": 1, "type": "detached", "id": id}));
    }
    app.ui.status(format_args!(
        "detached: job {id} goes on\n  follow it: gpucl job logs {id} --follow{flag}\n  stop it:   gpucl job stop {id}{flag}"
    ));
    exit_code::INTERRUPTED
}
