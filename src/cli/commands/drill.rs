//! `gpucl drill`: faults on purpose, to see what a cluster does about them.

mod kill_worker;
mod progress;
mod victim;

use crate::cli::app::App;

/// The commands below `drill`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Kill the worker that a small training runs on, and measure how the training goes on
    KillWorker(kill_worker::Args),
}

pub(crate) async fn run(app: &App, command: Command) -> anyhow::Result<u8> {
    match command {
        Command::KillWorker(args) => kill_worker::run(app, args).await,
    }
}
