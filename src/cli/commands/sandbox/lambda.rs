//! `gpucl sandbox lambda`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Listen, Served, serve};
use crate::cli::app::App;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::sandbox::hosts::{self, LocalHosts};
use crate::sandbox::lambda::{Config, Hosts, Sandbox, User};

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
    /// Show no address before something tells it at `/control/instances`, with the secret of the control
    #[arg(long)]
    wired: bool,
    /// Make up the instances: nobody can log in to them, and no sshd is needed
    #[arg(long, conflicts_with = "wired")]
    no_hosts: bool,
    /// The port of the instances' SSH servers, each of which has an address of its own on the loopback
    #[arg(long, value_name = "PORT", default_value_t = SSH_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    ssh_port: u16,
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

/// The port that the examples name.
const SSH_PORT: u16 = 2222;

/// What a user of a stand-in sets in the environment.
pub(crate) fn variables(sandbox: &Sandbox, user: User) -> Vec<(String, String)> {
    [("LAMBDA_API_KEY", sandbox.key(user)), ("LAMBDA_API_URL", sandbox.base_url())]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
}

/// A stand-in with Lambda's limits, and with Lambda's times only when they are asked for.
fn config(args: &Args) -> Config {
    let base =
        Config { port: args.listen.port.unwrap_or(0), wired: args.wired, unique_key_names: true, ..Config::default() };
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

/// The variables of this program's environment that are of no use to another host, or wrong there.
const OF_THIS_HOME: [&str; 5] = ["HOME", "USER", "LOGNAME", "SHELL", "LD_LIBRARY_PATH"];

/// What makes hosts of instances: servers of this user's own. They reach packages as this program does, and share its cache, so that a
/// Ray environment that is there already is not made for each of them.
fn hosts(app: &App, args: &Args, folder: &Path) -> Result<LocalHosts> {
    let mut environment: Vec<(String, String)> = app
        .node_environment()
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| !OF_THIS_HOME.contains(&name.as_str()) && !name.starts_with("XDG_"))
        .collect();
    if let Some(cache) = app.paths.cache.parent() {
        environment.push(("XDG_CACHE_HOME".to_owned(), cache.display().to_string()));
    }
    let pip = app.user_environment().config_home.join("pip/pip.conf");
    if pip.is_file() && app.variable("PIP_CONFIG_FILE").is_none() {
        environment.push(("PIP_CONFIG_FILE".to_owned(), pip.display().to_string()));
    }
    LocalHosts::new(hosts::Config { folder: folder.to_owned(), port: args.ssh_port, environment })
        .map_err(|error| error.hint("gpucl sandbox lambda --no-hosts   # its instances are made up then"))
}

/// Serves until Ctrl-C.
pub(super) async fn run(app: &App, args: Args) -> Result<u8> {
    let folder = tempfile::Builder::new()
        .prefix("gpucl-hosts-")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir()
        .doing(ErrorKind::Internal, || "make a folder for hosts".to_owned())?;
    let local = match args.no_hosts || args.wired {
        true => None,
        false => Some(Arc::new(hosts(app, &args, folder.path())?)),
    };
    let mut config = config(&args);
    config.hosts = local.clone().map(|local| local as Arc<dyn Hosts>);
    let sandbox = Sandbox::start(config).await?;
    let user = match args.user {
        UserName::Alice => User::Alice,
        UserName::Bob => User::Bob,
        UserName::Carol => User::Carol,
    };
    let hosts = if local.is_some() {
        format!(
            "it is no cloud: nothing is paid, and its instances are logins of yours at 127.0.0.2 and on, port {}, each with a home of its own",
            args.ssh_port
        )
    } else if args.wired {
        "it is no cloud: nothing is paid, and an instance gets the host that somebody makes for it".to_owned()
    } else {
        "it is no cloud: nothing is paid, and its instances are made up: they cannot be logged in to".to_owned()
    };
    let served = Served {
        name: format!("sandbox-lambda-{}", sandbox.port()),
        control_secret: sandbox.control_secret().to_owned(),
        variables: variables(&sandbox, user),
        control: sandbox.control_url(),
        what: vec![format!("a stand-in of Lambda answers at {} as {}", sandbox.base_url(), user.name()), hosts],
    };
    serve(app, served, async || {
        let (left, validated) = (sandbox.snapshot().counts(), sandbox.validated());
        sandbox.shutdown().await?;
        if let Some(local) = &local {
            local.end_all().await?;
        }
        let [instances, keys, file_systems, rulesets] = left;
        Ok(format!(
            "ended; forgotten are {instances} instances, {keys} keys, {file_systems} file systems, {rulesets} rulesets\n{validated}"
        ))
    })
    .await
}
