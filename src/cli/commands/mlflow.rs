//! `gpucl mlflow`: what a cluster's MLflow has, as a folder that outlives the cluster.

mod export;
mod import;
mod progress;
mod way;

pub(crate) use way::runs_soon;

use crate::cli::app::App;

/// The commands below `mlflow`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Copy experiments, runs with artifacts, and registered models into a new folder
    Export(export::Args),
    /// Copy an exported folder into the cluster's MLflow; what was copied before is left as it is
    Import(import::Args),
}

pub(crate) async fn run(app: &App, command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Export(args) => export::run(app, &args).await,
        Command::Import(args) => import::run(app, &args).await,
    }
}
