//! The user interface: arguments, environment, terminal, signals, exit codes.
//!
//! Only this module reads the environment, the home folder and the terminal; only it prints.

mod app;
mod args;
mod command_error;
mod commands;
mod consent;
mod edge;
pub mod exit_code;
mod global;
mod help;
mod money;
mod notice;
mod output;
mod own_files;
pub mod portal;
mod reserving;
mod run;
mod scheduled_up;
mod signals;
mod spec_args;
mod target;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};

pub use args::command;

/// Parses the command line, runs the command, and returns its exit code.
pub fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit_code::USAGE } else { exit_code::DONE });
        }
    };
    let format = arguments.global.output;
    let work = || -> anyhow::Result<u8> {
        let app = app::App::new(&arguments.global)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("start the asynchronous runtime")?;
        // Every command but the agent restarts a deadline agent that was killed. `up`, `run` and `down` may change what
        // it would act on, so they do their own work first.
        let changes =
            matches!(arguments.command, args::Command::Up(_) | args::Command::Run(_) | args::Command::Down(_));
        let is_agent = matches!(arguments.command, args::Command::Agent(_));
        if !changes && !is_agent {
            app.revive_watchers();
        }
        let code = runtime.block_on(async {
            let code = arguments.command.run(&app).await;
            app.shown().await;
            code
        });
        // A background read (terminal, log follow) must not delay the exit.
        runtime.shutdown_background();
        if changes {
            app.revive_watchers();
        }
        code
    };
    match work() {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(output::print_error(&edge::error_of(&error), format)),
    }
}

/// Parses the command line. What `--help` shows beyond the doc comments takes as long to add as all the rest takes to
/// parse, so it is only added where help is shown.
fn arguments() -> Result<args::Arguments, clap::Error> {
    let shows_help =
        |kind| matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    let matches = match args::Arguments::command().try_get_matches() {
        Err(error) if shows_help(error.kind()) => command().try_get_matches(),
        other => other,
    };
    args::Arguments::from_arg_matches(&matches?)
}
