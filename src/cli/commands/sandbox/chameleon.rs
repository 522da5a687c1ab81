//! `gpucl sandbox chameleon`.

use std::time::Duration;

use super::{Listen, Served, serve};
use crate::cli::app::App;
use crate::sandbox::chameleon::{Config, Quirks, Sandbox, User};

/// The arguments of `sandbox chameleon`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    listen: Listen,
    /// The user whose credential is printed
    #[arg(long, value_enum, value_name = "USER", default_value_t = UserName::Alice)]
    user: UserName,
    /// Behave like Chameleon's services where they differ from upstream
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

/// Short enough to wait for; real hosts take many minutes.
const BOOT: Duration = Duration::from_secs(5);

/// The real manager checks for due events every ten seconds.
const TICK: Duration = Duration::from_secs(2);

/// The environment variables that a user of the stand-in sets.
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

/// A stand-in without delays: what is requested exists when the answer arrives.
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
pub(super) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let config = Config {
        port: args.listen.port.unwrap_or(0),
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
    let served = Served {
        name: format!("sandbox-chameleon-{}", sandbox.port()),
        control_secret: sandbox.control_secret().to_owned(),
        variables: variables(&sandbox, user),
        control: sandbox.control_url(),
        what: vec![
            format!("a Chameleon stand-in answers at {auth_url} as {} of {}", credentials.user, credentials.project),
            "it is not a cloud: its leases and servers are simulated, and its hosts accept no logins".to_owned(),
        ],
    };
    serve(app, served, async || {
        let left = sandbox.snapshot().count();
        drop(sandbox);
        Ok(format!("stopped; {left} resources discarded"))
    })
    .await
}
