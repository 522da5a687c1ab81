//! `gpucl ssh`.

mod pod;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::target::Target;
use crate::cluster::Machines;
use crate::error::{Error, ErrorKind, Result};
use crate::ray::shell_line;
use crate::util::child;

/// The arguments of `ssh`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The host, named directly or by a node on it: host-0, head, worker-1; default: the head's host
    host: Option<String>,
    /// Forget the stored host key, so that the next connection accepts the current one
    #[arg(long, conflicts_with = "command")]
    forget_host_key: bool,
    /// A command and its arguments, run instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Replaces this process with the system's `ssh`; for a local cluster, with a shell in Ray's environment. A shell in a
/// pod goes through its platform.
pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let target = Target::choose(app)?;
    let remote = match target.machines(app).await?.as_ref() {
        Machines::Pods(pods) => return Ok(pod::run(app, &args, pods).await?),
        Machines::Here { .. } => return Ok(here(app, &target, &args)?),
        Machines::Ssh(remote) => remote,
    };
    let host = match &args.host {
        Some(name) => remote.host(name)?,
        None => remote.host("head").or_else(|_| remote.host("host-0"))?,
    };
    if args.forget_host_key {
        let was_there = remote.connections.forget_host_key(host.name())?;
        app.ui.status(format_args!(
            "{}: {}",
            host.name(),
            if was_there {
                "its key is forgotten; the next connection accepts the current one"
            } else {
                "no key was stored"
            }
        ));
        return Ok(exit_code::DONE);
    }
    // The socket of a shared login is there.
    remote.connections.is_private()?;
    let mut ssh = child::command("ssh");
    ssh.arg("-F").arg(remote.connections.config_file()).arg(host.name());
    if !args.command.is_empty() {
        ssh.arg("--").arg(shell_line(&args.command));
    }
    // Nothing is left to close when the process is replaced: no connection was made.
    Err(became(ssh, "run `ssh`", "sudo apt-get install openssh-client").into())
}

/// A local shell with the cluster's environment.
fn here(app: &App, target: &Target, args: &Args) -> Result<u8> {
    if args.forget_host_key {
        return Err(Error::new(ErrorKind::Unsupported, "forget a host key").because("the cluster runs on this machine"));
    }
    let mut shell = child::command(app.variable("SHELL").filter(|shell| !shell.is_empty()).unwrap_or("/bin/sh"));
    if !args.command.is_empty() {
        shell = child::command(&args.command[0]);
        shell.args(&args.command[1..]);
    }
    // The user's own shell or command, as if it were started from the one in front of them.
    shell.current_dir(&app.here);
    for (name, value) in target.access()?.settings(app.variable("PATH")) {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    if args.command.is_empty() {
        app.ui.status(format_args!(
            "{} runs on this machine: this is a local shell with its environment; `exit` ends it",
            target.name
        ));
    }
    Err(became(shell, "start a shell", "set SHELL to your shell"))
}

/// Replaces this process with another program; returns only on failure.
fn became(mut command: Command, doing: &str, hint: &str) -> Error {
    let error = command.exec();
    Error::new(ErrorKind::Host, doing).caused_by(&error).hint(hint)
}
