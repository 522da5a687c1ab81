//! Everything that faces a person: arguments, environment, terminal, signals, exit codes.
//!
//! Only this module reads the environment, the home folder and the terminal; only it prints.

mod app;
mod args;
mod command_error;
mod commands;
pub mod exit_code;
mod global;
mod money;
mod output;
pub mod portal;
mod reserving;
mod run;
mod scheduled_up;
mod spec_args;
mod target;

use std::process::ExitCode;

use clap::Parser as _;

pub use args::command;

/// Parses the command line, runs the command, and says how it ended.
pub fn main() -> ExitCode {
    let arguments = match args::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit_code::USAGE } else { exit_code::DONE });
        }
    };
    let format = arguments.global.output;
    let outcome = app::App::new(&arguments.global).and_then(|app| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| command_error::internal("start the asynchronous runtime", &error))?;
        // What looks after a deadline and was killed is started again by any command. `up` and `down` may change what it would act
        // upon: they do what they are asked to first. What looks after one itself is not asked.
        let changes = matches!(arguments.command, args::Command::Up(_) | args::Command::Down(_));
        let is_agent = matches!(arguments.command, args::Command::Agent(_));
        if !changes && !is_agent {
            app.revive_watchers();
        }
        let code = runtime.block_on(arguments.command.run(&app));
        // A background read (a terminal, a follow) must not hold up the end.
        runtime.shutdown_background();
        if changes {
            app.revive_watchers();
        }
        code
    });
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(output::print_error(&error, format)),
    }
}
