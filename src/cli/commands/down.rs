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
pub(crate) struct Args {
    /// Keep the data volumes on the hosts
    #[arg(long)]
    keep_data: bool,
    /// Remove what was installed on the hosts for the cluster as well: packages, repositories, settings
    #[arg(long)]
    purge: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> Result<u8> {
    let name = target::name(app)?;
    if !app.yes && !app.json() && app.ui.asks() {
        let answer = app.ui.ask(&format!("remove everything of the cluster {name}? [y/N] "));
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Err(usage("remove the cluster", "you did not say yes; nothing was changed"));
        }
    }
    let options = cluster::DownOptions { keep_data: args.keep_data, purge: args.purge };
    let (mut proof, mut kept) = (Vec::new(), Vec::new());
    let ended = run_with_events(app, "down", name.as_str(), async |events, cancel| {
        let settings = app.settings(events.clone(), cancel)?;
        let done = cluster::down(&settings, &name, options).await?;
        for line in &done.removed {
            events.note(format!("removed: {line}"));
        }
        for line in &done.seen {
            events.note(format!("looked: {line}"));
        }
        for line in &done.kept {
            events.note(format!("stays: {line}"));
        }
        (proof, kept) = (done.seen, done.kept);
        Ok(Ended { summary: format!("nothing of {name} is left"), endpoints: Vec::new() })
    })
    .await?;
    if !app.json() {
        app.ui.data(ended.summary);
        for line in proof {
            app.ui.data(format!("  {line}"));
        }
        for line in kept {
            app.ui.data(format!("  stays: {line}"));
        }
    }
    Ok(exit_code::DONE)
}
