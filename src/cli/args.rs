//! The command line. The doc comments are the help text.

use clap::{CommandFactory as _, Parser, Subcommand};

use super::app::App;
use super::commands;
use super::global::Global;

/// From no GPU to a verified Ray cluster, and back to nothing left
#[derive(Debug, Parser)]
#[command(name = "gpucl", version, propagate_version = true, disable_help_subcommand = true, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Bring up the cluster that a spec describes, or update it to match the spec
    Up(commands::up::Args),
    /// Bring up a cluster, run one job on it, fetch its outputs, and take the cluster down
    Run(Box<commands::run::Args>),
    /// Show what `up` would do, without doing it
    Plan(commands::plan::Args),
    /// Stop Ray and keep the hosts
    Stop(commands::stop::Args),
    /// Remove a cluster completely, and verify that nothing is left
    Down(commands::down::Args),
    /// Show a cluster's nodes, resources and jobs
    Status(commands::status::Args),
    /// Show what nodes and GPUs use now: CPU, memory, GPU time and temperature
    Top(commands::top::Args),
    /// Run all checks of a cluster again
    Verify(commands::verify::Args),
    /// Move the end of a cluster: its lease or its deadline, such as `gpucl keep 2h`
    Keep(commands::keep::Args),
    /// Save now what the spec saves at the end
    Save(commands::save::Args),
    /// List your clusters
    List(commands::list::Args),
    /// Run and follow jobs
    #[command(subcommand)]
    Job(commands::job::Command),
    /// List the workers; stop, start or kill one of them
    #[command(subcommand)]
    Worker(commands::worker::Command),
    /// Cause a fault on purpose, and measure how the cluster recovers
    #[command(subcommand)]
    Drill(commands::drill::Command),
    /// Store values that jobs get as environment variables, such as tokens
    #[command(subcommand)]
    Secret(commands::secret::Command),
    /// Print the logs of nodes and services
    Logs(commands::logs::Args),
    /// Run a command on the hosts
    Exec(commands::exec::Args),
    /// Open a shell on a host, or run one command there
    Ssh(commands::ssh::Args),
    /// Copy files and folders to or from a host, such as `gpucl cp data head:`
    Cp(commands::cp::Args),
    /// Make a folder the same on a host and here: send only what differs, such as `gpucl sync data head:data`
    Sync(commands::sync::Args),
    /// List, read, write and delete objects of the cluster's object store
    #[command(subcommand)]
    Store(commands::store::Command),
    /// Deploy applications to Ray Serve, ask them, and go back to an earlier deployment
    #[command(subcommand)]
    Serve(commands::serve::Command),
    /// Copy what MLflow has into a folder, and from one into another cluster's
    #[command(subcommand)]
    Mlflow(commands::mlflow::Command),
    /// Forward a local port to a port of a host, until Ctrl-C
    PortForward(commands::port_forward::Args),
    /// Open a cluster's web pages, logged in, until Ctrl-C
    Dashboard(commands::dashboard::Args),
    /// Print the environment that the plain `ray` command needs: eval "$(gpucl env)"
    Env(commands::env::Args),
    /// Write the files that `up` would deploy, without deploying them
    Render(commands::render::Args),
    /// Show what providers offer, when it is free, and what it costs
    Offers(commands::offers::Args),
    /// Show when hosts are reserved, as a chart
    Calendar(commands::calendar::Args),
    /// Reserve hosts by name and time; list, extend and delete leases
    Lease(Box<commands::lease::Args>),
    /// Delete resources at providers that no local state accounts for
    Gc(commands::gc::Args),
    /// Show, take over or replace the owner of this machine's clusters
    #[command(subcommand)]
    Owner(commands::owner::Command),
    /// Check this machine for what each provider and runtime needs
    Doctor(commands::doctor::Args),
    /// List providers, or run the conformance checks on one
    #[command(subcommand)]
    Provider(commands::provider::Command),
    /// Serve a local stand-in for a cloud, to try gpucl without an account
    #[command(subcommand)]
    Sandbox(commands::sandbox::Command),
    /// Log in to a provider, and store the credential
    Login(commands::login::Args),
    /// Delete credentials that `login` stored
    Logout(commands::login::LogoutArgs),
    /// List the templates, or copy one to modify it
    #[command(subcommand)]
    Template(commands::template::Command),
    /// List the built-in examples, or copy one into a folder of yours
    #[command(subcommand)]
    Example(commands::example::Command),
    /// Print the JSON Schema of a spec
    Schema(commands::schema::Args),
    /// Print completions for a shell
    Completions(commands::completions::Args),
    /// Print the man page, or write one for every command
    Man(commands::man::Args),
    /// Run the background process of a cluster
    #[command(hide = true)]
    Agent(commands::agent::Args),
}

/// The clap command tree, for completions and the command reference.
pub fn command() -> clap::Command {
    super::help::complete(Arguments::command())
}

impl Command {
    /// Runs the command; returns the exit code. Each is boxed: the future that waits for any of them would be as large as
    /// the largest, and every start would write it to the stack and move it.
    pub(crate) async fn run(self, app: &App) -> anyhow::Result<u8> {
        match self {
            Self::Up(args) => Box::pin(commands::up::run(app, args)).await,
            Self::Run(args) => Box::pin(commands::run::run(app, *args)).await,
            Self::Plan(args) => Box::pin(commands::plan::run(app, args)).await,
            Self::Stop(args) => Box::pin(commands::stop::run(app, args)).await,
            Self::Down(args) => Box::pin(commands::down::run(app, args)).await,
            Self::Status(args) => Box::pin(commands::status::run(app, args)).await,
            Self::Top(args) => Box::pin(commands::top::run(app, args)).await,
            Self::Verify(args) => Box::pin(commands::verify::run(app, args)).await,
            Self::Keep(args) => Box::pin(commands::keep::run(app, args)).await,
            Self::Save(args) => Box::pin(commands::save::run(app, args)).await,
            Self::List(args) => Box::pin(commands::list::run(app, args)).await,
            Self::Job(command) => Box::pin(commands::job::run(app, command)).await,
            Self::Worker(command) => Box::pin(commands::worker::run(app, command)).await,
            Self::Drill(command) => Box::pin(commands::drill::run(app, command)).await,
            Self::Secret(command) => commands::secret::run(app, command),
            Self::Logs(args) => Box::pin(commands::logs::run(app, args)).await,
            Self::Exec(args) => Box::pin(commands::exec::run(app, args)).await,
            Self::Ssh(args) => Box::pin(commands::ssh::run(app, args)).await,
            Self::Cp(args) => Box::pin(commands::cp::run(app, args)).await,
            Self::Sync(args) => Box::pin(commands::sync::run(app, args)).await,
            Self::Store(command) => Box::pin(commands::store::run(app, command)).await,
            Self::Serve(command) => Box::pin(commands::serve::run(app, command)).await,
            Self::Mlflow(command) => Box::pin(commands::mlflow::run(app, command)).await,
            Self::PortForward(args) => Box::pin(commands::port_forward::run(app, args)).await,
            Self::Dashboard(args) => Box::pin(commands::dashboard::run(app, args)).await,
            Self::Env(args) => Box::pin(commands::env::run(app, args)).await,
            Self::Render(args) => Box::pin(commands::render::run(app, args)).await,
            Self::Offers(args) => Box::pin(commands::offers::run(app, args)).await,
            Self::Calendar(args) => Box::pin(commands::calendar::run(app, args)).await,
            Self::Lease(args) => Box::pin(commands::lease::run(app, *args)).await,
            Self::Gc(args) => Box::pin(commands::gc::run(app, args)).await,
            Self::Owner(command) => Box::pin(commands::owner::run(app, command)).await,
            Self::Doctor(args) => Box::pin(commands::doctor::run(app, args)).await,
            Self::Provider(command) => Box::pin(commands::provider::run(app, command)).await,
            Self::Sandbox(command) => Box::pin(commands::sandbox::run(app, command)).await,
            Self::Login(args) => Box::pin(commands::login::run(app, args)).await,
            Self::Logout(args) => Box::pin(commands::login::logout(app, &args)).await,
            Self::Template(command) => Box::pin(commands::template::run(app, command)).await,
            Self::Example(command) => Box::pin(commands::example::run(app, command)).await,
            Self::Schema(args) => Box::pin(commands::schema::run(app, args)).await,
            Self::Completions(args) => commands::completions::run(app, args, self::command()).await,
            Self::Man(args) => commands::man::run(app, args, self::command()).await,
            Self::Agent(args) => Box::pin(commands::agent::run(app, args)).await,
        }
    }
}
