//! `gpucl sandbox lambda`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Listen, Served, serve};
use crate::cli::app::App;
use crate::error::Result;
use crate::sandbox::hosts::{self, LocalHosts};
use crate::sandbox::lambda::{Config, Hosts, Sandbox, User};
use anyhow::Context as _;

/// The arguments of `sandbox lambda`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    listen: Listen,
    /// The user whose key is printed
    #[arg(long, value_enum, value_name = "USER", default_value_t = UserName::Alice)]
    user: UserName,
    /// Use Lambda's real timing: minutes for a boot
    #[arg(long)]
    lambda_times: bool,
    /// Show no address until one is sent to `/control/instances`, with the control secret
    #[arg(long)]
    wired: bool,
    /// Simulate the instances: they accept no logins, and no sshd is needed
    #[arg(long, conflicts_with = "wired")]
    no_hosts: bool,
    /// The port of the instances' SSH servers, each at its own loopback address
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

/// Short enough to wait for; a real instance takes minutes.
const BOOT: Duration = Duration::from_secs(5);

/// The port that the examples use.
const SSH_PORT: u16 = 2222;

/// The environment variables that a user of the stand-in sets.
pub(crate) fn variables(sandbox: &Sandbox, user: User) -> Vec<(String, String)> {
    [("LAMBDA_API_KEY", sandbox.key(user)), ("LAMBDA_API_URL", sandbox.base_url())]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
}

/// A stand-in with Lambda's limits; with Lambda's timing only if requested.
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

/// Environment variables that are useless or wrong on another host.
const OF_THIS_HOME: [&str; 5] = ["HOME", "USER", "LOGNAME", "SHELL", "LD_LIBRARY_PATH"];

/// The SSH servers that act as instances, run by this user. They reach package indexes as this program does, and share
/// its cache, so that an existing Ray environment is not installed for each of them.
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
        .map_err(|error| error.hint("gpucl sandbox lambda --no-hosts   # with simulated instances"))
}

/// Serves until Ctrl-C.
pub(super) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let folder = tempfile::Builder::new()
        .prefix("gpucl-hosts-")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir()
        .context("make a folder for hosts")?;
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
            "it is not a cloud: nothing is charged, and its instances are logins of yours from 127.0.0.2 up, port {}, \
             each with its own home",
            args.ssh_port
        )
    } else if args.wired {
        "it is not a cloud: nothing is charged, and an instance uses the host that you provide for it".to_owned()
    } else {
        "it is not a cloud: nothing is charged, and its instances are simulated: they accept no logins".to_owned()
    };
    let served = Served {
        name: format!("sandbox-lambda-{}", sandbox.port()),
        control_secret: sandbox.control_secret().to_owned(),
        variables: variables(&sandbox, user),
        control: sandbox.control_url(),
        what: vec![format!("a Lambda stand-in answers at {} as {}", sandbox.base_url(), user.name()), hosts],
    };
    serve(app, served, async || {
        let (left, validated) = (sandbox.snapshot().counts(), sandbox.validated());
        sandbox.shutdown().await?;
        if let Some(local) = &local {
            local.end_all().await?;
        }
        let [instances, keys, file_systems, rulesets] = left;
        Ok(format!(
            "stopped; discarded {instances} instances, {keys} keys, {file_systems} file systems, {rulesets} rulesets\n{validated}"
        ))
    })
    .await
}
