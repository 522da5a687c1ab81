//! `gpucl sandbox`.

use std::time::Duration;

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::sandbox::chameleon::{Config, Quirks, Sandbox, User};

/// The stand-ins there are.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// A Chameleon site on the loopback, until Ctrl-C; its hosts are none, nobody can log in to them
    ///
    /// In one terminal: gpucl sandbox chameleon | tee chameleon.env
    /// In another: . ./chameleon.env; gpucl lease --node liqid01 --hours 3
    #[command(verbatim_doc_comment)]
    Chameleon(ChameleonArgs),
}

/// The arguments of `sandbox chameleon`.
#[derive(Debug, clap::Args)]
pub(crate) struct ChameleonArgs {
    /// The port on the loopback; any when absent
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Who the printed credential is of
    #[arg(long, value_enum, value_name = "USER", default_value_t = UserName::Alice)]
    user: UserName,
    /// Behave as Chameleon's own services where these differ from upstream's
    #[arg(long)]
    chameleon_quirks: bool,
}

/// The users of the stand-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum UserName {
    /// A user of CHI-TEST
    Alice,
    /// The same, with a credential that cannot make leases
    AliceRestricted,
    /// Another user of CHI-TEST
    Bob,
    /// A user of CHI-OTHER
    Carol,
}

/// As long as a person likes to wait where real hosts take many minutes.
const BOOT: Duration = Duration::from_secs(5);

/// The real manager looks for due events every ten seconds.
const TICK: Duration = Duration::from_secs(2);

/// What a user of a stand-in sets in the environment.
pub(crate) fn variables(sandbox: &Sandbox, user: User) -> Vec<(String, String)> {
    let credentials = sandbox.credentials(user);
    [
        ("OS_AUTH_TYPE", "v3applicationcredential".to_owned()),
        ("OS_AUTH_URL", sandbox.auth_url()),
        ("OS_IDENTITY_API_VERSION", "3".to_owned()),
        ("OS_INTERFACE", "public".to_owned()),
        ("OS_REGION_NAME", sandbox.region()),
        ("OS_APPLICATION_CREDENTIAL_ID", credentials.id),
        ("OS_APPLICATION_CREDENTIAL_SECRET", credentials.secret),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// A stand-in that makes nobody wait: what is asked for is there when the answer comes.
pub(crate) fn prompt() -> Config {
    let at_once = Duration::from_millis(1);
    Config {
        boot: Duration::ZERO,
        schedule: Duration::ZERO,
        deletion: Duration::ZERO,
        lease_tick: at_once,
        transition: Duration::ZERO,
        ..Config::default()
    }
}

/// Serves until Ctrl-C.
pub(crate) async fn run(app: &App, command: Command) -> Result<u8> {
    let Command::Chameleon(args) = command;
    let listen = |kind| signal(kind).doing(ErrorKind::Internal, || "listen for Ctrl-C".to_owned());
    let (mut interrupted, mut terminated, mut hung_up) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    let config = Config {
        port: args.port.unwrap_or(0),
        boot: BOOT,
        schedule: Duration::from_secs(1),
        deletion: Duration::from_secs(1),
        lease_tick: TICK,
        transition: Duration::from_secs(1),
        quirks: if args.chameleon_quirks { Quirks::chameleon() } else { Quirks::default() },
        ..Config::default()
    };
    let sandbox = Sandbox::start(config).await?;
    let user = match args.user {
        UserName::Alice => User::Alice,
        UserName::AliceRestricted => User::AliceRestricted,
        UserName::Bob => User::Bob,
        UserName::Carol => User::Carol,
    };
    let (auth_url, credentials) = (sandbox.auth_url(), sandbox.credentials(user));
    let variables = variables(&sandbox, user);
    if app.json() {
        let variables: serde_json::Map<String, serde_json::Value> =
            variables.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        app.ui.json(&json!({
            "v": 1, "type": "sandbox", "variables": variables, "control": sandbox.control_url(), "stand_in": true,
        }));
    } else {
        for (name, value) in variables {
            app.ui.data(format_args!("export {name}='{value}'"));
        }
    }
    app.ui.status(format_args!(
        "a stand-in of Chameleon answers at {auth_url} as {} of {}",
        credentials.user, credentials.project
    ));
    app.ui.status("it is no cloud: its leases and servers are made up, and its hosts cannot be logged in to");
    app.ui.status(format_args!("what it holds: curl {}/snapshot", sandbox.control_url()));
    app.ui.status("serving until Ctrl-C");
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
        _ = hung_up.recv() => {}
    }
    let left = sandbox.snapshot().count();
    drop(sandbox);
    app.ui.status(format_args!("ended; {left} things that it held are forgotten"));
    Ok(exit_code::DONE)
}
