//! One file per command: its arguments, whose doc comments are its help, and `run`.

pub(crate) mod agent;
pub(crate) mod calendar;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod dashboard;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod env;
pub(crate) mod exec;
pub(crate) mod gc;
pub(crate) mod job;
pub(crate) mod lease;
pub(crate) mod list;
pub(crate) mod login;
pub(crate) mod logs;
pub(crate) mod offers;
pub(crate) mod owner;
pub(crate) mod plan;
pub(crate) mod port_forward;
pub(crate) mod provider;
pub(crate) mod render;
pub(crate) mod sandbox;
pub(crate) mod schema;
pub(crate) mod ssh;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod template;
pub(crate) mod up;
pub(crate) mod verify;

use super::app::App;
use super::args::Command;
use crate::error::Result;

/// Runs a command; hands back the exit code.
pub(crate) async fn run(app: &App, command: Command) -> Result<u8> {
    match command {
        Command::Up(args) => up::run(app, args).await,
        Command::Plan(args) => plan::run(app, args).await,
        Command::Stop(args) => stop::run(app, args).await,
        Command::Down(args) => down::run(app, args).await,
        Command::Status(args) => status::run(app, args).await,
        Command::Verify(args) => verify::run(app, args).await,
        Command::List(args) => list::run(app, args).await,
        Command::Job(command) => job::run(app, command).await,
        Command::Logs(args) => logs::run(app, args).await,
        Command::Exec(args) => exec::run(app, args).await,
        Command::Ssh(args) => ssh::run(app, args).await,
        Command::Cp(args) => cp::run(app, args).await,
        Command::PortForward(args) => port_forward::run(app, args).await,
        Command::Dashboard(args) => dashboard::run(app, args).await,
        Command::Env(args) => env::run(app, args).await,
        Command::Render(args) => render::run(app, args).await,
        Command::Offers(args) => offers::run(app, args).await,
        Command::Calendar(args) => calendar::run(app, args).await,
        Command::Lease(args) => lease::run(app, *args).await,
        Command::Gc(args) => gc::run(app, args).await,
        Command::Owner(command) => owner::run(app, command).await,
        Command::Doctor(args) => doctor::run(app, args).await,
        Command::Provider(command) => provider::run(app, command).await,
        Command::Sandbox(command) => sandbox::run(app, command).await,
        Command::Login(args) => login::run(app, args).await,
        Command::Logout(args) => login::logout(app, &args),
        Command::Template(command) => template::run(app, command).await,
        Command::Schema(args) => schema::run(app, args).await,
        Command::Completions(args) => completions::run(app, args).await,
        Command::Agent(args) => agent::run(app, args).await,
    }
}
