//! `gpucl ssh`.

mod pod;

use std::os::unix::process::CommandExt as _;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::target::Target;
use crate::cluster::Shell;

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
    let (machines, host) = (target.machines(app).await?, args.host.as_deref());
    if args.forget_host_key {
        let (name, was_there) = machines.forget_host_key(host)?;
        app.ui.status(format_args!(
            "{name}: {}",
            if was_there {
                "its key is forgotten; the next connection accepts the current one"
            } else {
                "no key was stored"
            }
        ));
        return Ok(exit_code::DONE);
    }
    let size = pod::terminal_size();
    match machines.shell(host, &args.command, size).await? {
        Shell::Attached { machine, running } => Ok(pod::run(app, &machine, running, size).await?),
        Shell::Program { mut command, failure } => {
            if args.command.is_empty() && !target.is_remote() {
                app.ui.status(format_args!(
                    "{} runs on this machine: this is a local shell with its environment; `exit` ends it",
                    target.name
                ));
            }
            // Nothing is left to close when the process is replaced: no connection was made. It returns only on failure.
            let error = command.exec();
            Err(failure.caused_by(&error).into())
        }
    }
}
