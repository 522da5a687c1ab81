//! `gpucl sandbox lambda`.

use std::time::Duration;

use super::{Listen, Served, serve};
use crate::cli::app::App;
use crate::error::Result;
use crate::sandbox::lambda::{Config, Sandbox, User};

/// The arguments of `sandbox lambda`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    listen: Listen,
    /// Whose key is printed
    #[arg(long, value_enum, value_name = "USER", default_value_t = UserName::Alice)]
    user: UserName,
    /// Take as long as Lambda: minutes for a boot
    #[arg(long)]
    lambda_times: bool,
    /// Show no address before something tells it at `/control/instances`
    #[arg(long)]
    wired: bool,
}

/// The users of the stand-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum UserName {
    /// A user of the account
    Alice,
    /// Another user of the same account
    Bob,
    /// A user whose account is inactive
    Carol,
}

/// As long as a person likes to wait where a real instance takes minutes.
const BOOT: Duration = Duration::from_secs(5);

/// What a user of a stand-in sets in the environment.
pub(crate) fn variables(sandbox: &Sandbox, user: User) -> Vec<(String, String)> {
    [("LAMBDA_API_KEY", sandbox.key(user)), ("LAMBDA_API_URL", sandbox.base_url())]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
}

/// A stand-in with Lambda's limits, and with Lambda's times only when they are asked for.
fn config(args: &Args) -> Config {
    let base = Config { port: args.listen.port.unwrap_or(0), wired: args.wired, ..Config::default() };
    if args.lambda_times {
        return base;
    }
    let prompt = Config::prompt();
    Config {
        types: prompt.types,
        boot: BOOT,
        address: BOOT / 2,
        silent: prompt.silent,
        restart: BOOT,
        terminating: Duration::from_secs(2),
        linger: Duration::from_secs(30),
        ..base
    }
}

/// Serves until Ctrl-C.
pub(super) async fn run(app: &App, args: Args) -> Result<u8> {
    let sandbox = Sandbox::start(config(&args)).await?;
    let user = match args.user {
        UserName::Alice => User::Alice,
        UserName::Bob => User::Bob,
        UserName::Carol => User::Carol,
    };
    let hosts = if args.wired {
        "it is no cloud: nothing is paid, and an instance gets the host that somebody makes for it"
    } else {
        "it is no cloud: nothing is paid, and its instances are made up: they cannot be logged in to"
    };
    let served = Served {
        variables: variables(&sandbox, user),
        control: sandbox.control_url(),
        what: vec![
            format!("a stand-in of Lambda answers at {} as {}", sandbox.base_url(), user.name()),
            hosts.to_owned(),
        ],
    };
    serve(app, served, async || {
        let (left, validated) = (sandbox.snapshot().counts(), sandbox.validated());
        sandbox.shutdown().await?;
        let [instances, keys, file_systems, rulesets] = left;
        Ok(format!(
            "ended; forgotten are {instances} instances, {keys} keys, {file_systems} file systems, {rulesets} rulesets\n{validated}"
        ))
    })
    .await
}
