//! `gpucl exec`.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::target::Target;
use crate::cluster::{self, Machines, PodHost, Pods, Remote};
use crate::error::{Error, ErrorKind, Result};
use crate::host::{Account, ExecEnd, Host, Stream};
use crate::ray::shell_line;
use crate::render::quote_path;

/// The arguments of `exec`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The host to run on, named directly or by a node on it; repeatable; default: all hosts
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Run the command as root
    #[arg(long)]
    root: bool,
    /// Pass colours and control sequences to the terminal; to a file or pipe, output is never changed
    #[arg(long)]
    raw: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs a command on hosts of the cluster; returns its exit code, or the highest if there are several hosts.
pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    // A name before `--` would be taken for the program, and searched for on every host.
    if let [name, dashes, rest @ ..] = args.command.as_slice()
        && dashes == "--"
        && !rest.is_empty()
    {
        return Err(usage("run the command", format!("`{name}` comes before `--`; name a host with --host"))
            .hint(format!("gpucl exec --host {name} -- {}", shell_line(rest)))
            .into());
    }
    let target = Target::choose(app)?;
    Ok(match target.machines(app).await?.as_ref() {
        Machines::Pods(pods) => in_pods(app, &args, pods).await?,
        Machines::Ssh(remote) => by_ssh(app, &args, remote).await?,
        Machines::Here { .. } => here(app, &args, &target).await?,
    })
}

/// Runs the command on this machine, with Ray's environment.
async fn here(app: &App, args: &Args, target: &Target) -> Result<u8> {
    if args.root {
        return Err(Error::new(ErrorKind::Unsupported, "run the command as root")
            .because("the cluster runs on this machine, as you"));
    }
    let mut program = String::new();
    for (name, value) in target.access().map(|access| access.settings(app.variable("PATH"))).unwrap_or_default() {
        match value {
            Some(value) => program.push_str(&format!("export {name}={}\n", shell_line(&[value]))),
            None => program.push_str(&format!("unset {name}\n")),
        }
    }
    // The user's own command sees the folder in which it was typed, as with `gpucl ssh`.
    program.push_str(&format!(
        "cd {} && exec {}\n",
        shell_line(&[app.here.to_string_lossy()]),
        shell_line(&args.command)
    ));
    let mut hosts = cluster::local_hosts(&target.known.state, &app.node_environment())?;
    let known: Vec<String> = hosts.iter().map(|host| host.name().to_owned()).collect();
    if let Some(unknown) = args.host.iter().find(|name| !known.contains(name)) {
        return Err(Error::new(ErrorKind::NotFound, format!("find the host {unknown}"))
            .because("the cluster has no host of that name")
            .hint(format!("there are: {}", known.join(", "))));
    }
    hosts.retain(|host| args.host.is_empty() || args.host.iter().any(|name| name == host.name()));
    let mut code = exit_code::DONE;
    for host in hosts {
        code = code.max(on(app, &host, &program, "", args.raw).await?);
    }
    Ok(code)
}

/// Runs the command in all or some pods, one after the other.
async fn in_pods(app: &App, args: &Args, pods: &Arc<Pods>) -> Result<u8> {
    if args.root {
        return Err(Error::new(ErrorKind::Unsupported, "run the command as root")
            .because("the cluster's pods run as another user, and nothing in them may become root"));
    }
    let mut chosen = Vec::new();
    for name in &args.host {
        chosen.push(pods.named(name).await?);
    }
    if args.host.is_empty() {
        chosen = pods.members().await?;
    }
    let program = format!("exec {}\n", shell_line(&args.command));
    let mut code = exit_code::DONE;
    for member in &chosen {
        let host = PodHost::new(pods, member);
        let label = if chosen.len() > 1 { format!("{} | ", host.name()) } else { String::new() };
        code = code.max(on(app, &host, &program, &label, args.raw).await?);
    }
    Ok(code)
}

/// Runs the command on all or some hosts in parallel; with several, each line begins with its host's name.
async fn by_ssh(app: &App, args: &Args, remote: &Remote) -> Result<u8> {
    let chosen = match args.host.as_slice() {
        [] => remote.hosts.iter().collect(),
        names => {
            let mut chosen = Vec::new();
            for name in names {
                let host = remote.host(name)?;
                // Two nodes on one host name the same host.
                if !chosen.iter().any(|other: &&cluster::RemoteHost| other.key == host.key) {
                    chosen.push(host);
                }
            }
            chosen
        }
    };
    let width = chosen.iter().map(|host| host.name().len()).max().unwrap_or_default();
    let runs = chosen.iter().map(|host| {
        let label = if chosen.len() > 1 { format!("{:<width$} | ", host.name()) } else { String::new() };
        // As root, `~` would be another home folder.
        let data = Some(host.folders().data()).filter(|data| !args.root || data.starts_with('/'));
        let data = data.map(|data| format!("export GPUCL_DATA={}\n", quote_path(&data))).unwrap_or_default();
        let program = format!("{data}exec {}\n", shell_line(&args.command));
        async move {
            let ssh = remote.connect(host).await?;
            let ssh = ssh.by(if args.root { Account::Root } else { Account::User });
            on(app, &ssh, &program, &label, args.raw).await
        }
    });
    let mut code = exit_code::DONE;
    let mut failures = Vec::new();
    for (host, ended) in chosen.iter().zip(join_all(runs).await) {
        match ended {
            Ok(0) => {}
            Ok(status) => {
                code = code.max(status);
                if chosen.len() > 1 {
                    app.ui.status(format_args!("{}: exit code {status}", host.name()));
                }
            }
            Err(error) => failures.push(error),
        }
    }
    // All hosts have finished; the first failure is shown in full, the others as causes.
    let mut failures = failures.into_iter();
    match failures.next() {
        None => Ok(code),
        Some(first) => Err(failures.fold(first, |first, other| first.because(format!("also: {other}")))),
    }
}

/// Runs the program on one host; returns its exit code.
async fn on(app: &App, host: &dyn Host, program: &str, label: &str, raw: bool) -> Result<u8> {
    let shown = app.ui.program(raw);
    let name = host.name().to_owned();
    let mut on_line = |stream: Stream, line: &str| match (app.json(), stream) {
        (true, _) => {
            app.ui.json(&serde_json::json!({
                "v": 1, "type": "exec_line", "host": name, "stream": if stream == Stream::Out { "out" } else { "err" },
                "line": line,
            }));
        }
        (false, Stream::Out) => shown.line(&format!("{label}{line}")),
        (false, Stream::Err) => shown.error_line(&format!("{label}{line}")),
    };
    match host.exec(program, &mut on_line).await? {
        ExecEnd::Exited(0) => Ok(exit_code::DONE),
        ExecEnd::Exited(status) => Ok(u8::try_from(status.clamp(1, 255)).unwrap_or(exit_code::FAILED)),
        ExecEnd::Broken => Err(Error::new(ErrorKind::Host, format!("run the command on {name}"))
            .because("a signal ended it, or the connection was lost")),
    }
}
