//! `gpucl down`.

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::run::{Ended, run as run_with_events};
use crate::cli::target;
use crate::cluster;
use crate::error::Result;

/// The arguments of `down`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(app: &App, _args: Args) -> Result<u8> {
    let name = target::name(app)?;
    if !app.yes && !app.json() && app.ui.asks() {
        let answer = app.ui.ask(&format!("remove everything of the cluster {name}? [y/N] "));
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Err(usage("remove the cluster", "you did not say yes; nothing was changed"));
        }
    }
    let mut proof = Vec::new();
    let ended = run_with_events(app, "down", name.as_str(), async |events, cancel| {
        let settings = app.settings(events.clone(), cancel)?;
        let done = cluster::down(&settings, &name).await?;
        for line in &done.removed {
            events.note(format!("removed: {line}"));
        }
        for line in &done.seen {
            events.note(format!("looked: {line}"));
        }
        proof = done.seen;
        Ok(Ended { summary: format!("nothing of {name} is left"), endpoints: Vec::new() })
    })
    .await?;
    if !app.json() {
        app.ui.data(ended.summary);
        for line in proof {
            app.ui.data(format!("  {line}"));
        }
    }
    Ok(exit_code::DONE)
}
