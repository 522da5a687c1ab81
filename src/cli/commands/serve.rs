//! `gpucl serve`.

mod delete;
mod deploy;
mod open;
mod rollback;
mod show;

use crate::cli::app::App;

/// The commands below `serve`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Deploy an application, and wait until it serves
    Deploy(deploy::Args),
    /// Show the applications, and why one does not serve
    Status(show::StatusArgs),
    /// Print the logs of an application's replicas
    Logs(show::LogsArgs),
    /// Deploy what ran before the last deployment
    Rollback(rollback::Args),
    /// Delete an application; without a name all, and Serve ends
    Delete(delete::Args),
    /// Print the address of the applications and the key to them, until Ctrl-C
    Url(show::UrlArgs),
}

pub(crate) async fn run(app: &App, command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Deploy(args) => deploy::run(app, args).await,
        Command::Status(args) => show::status(app, &args).await,
        Command::Logs(args) => show::logs(app, &args).await,
        Command::Rollback(args) => rollback::run(app, &args).await,
        Command::Delete(args) => delete::run(app, &args).await,
        Command::Url(args) => show::url(app, &args).await,
    }
}
