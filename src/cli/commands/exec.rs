//! `gpucl exec`.

use futures_util::future::join_all;

use crate::cli::app::App;
use crate::cli::command_error::usage;
use crate::cli::exit_code;
use crate::cli::target::Target;
use crate::cluster::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::host::{Account, ExecEnd, Stream};
use crate::ray::shell_line;

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

/// Runs a command on machines of the cluster, in parallel; with several, each line begins with its machine's name. Returns
/// its exit code, the highest of several.
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
    let chosen = target.machines(app).await?.chosen(&args.host).await?;
    if args.root {
        chosen.iter().try_for_each(|machine| machine.check_root("run the command as root"))?;
    }
    let width = chosen.iter().map(|machine| machine.name().len()).max().unwrap_or_default();
    let runs = chosen.iter().map(|machine| {
        let label = if chosen.len() > 1 { format!("{:<width$} | ", machine.name()) } else { String::new() };
        async { on(app, machine, &args, label).await }
    });
    let mut code = exit_code::DONE;
    let mut failures = Vec::new();
    for (machine, ended) in chosen.iter().zip(join_all(runs).await) {
        match ended {
            Ok(0) => {}
            Ok(status) => {
                code = code.max(status);
                if chosen.len() > 1 {
                    app.ui.status(format_args!("{}: exit code {status}", machine.name()));
                }
            }
            Err(error) => failures.push(error),
        }
    }
    // All have finished; the first failure is shown in full, the others as causes.
    let mut failures = failures.into_iter();
    match failures.next() {
        None => Ok(code),
        Some(first) => Err(failures.fold(first, |first, other| first.because(format!("also: {other}"))).into()),
    }
}

/// Runs the command on one machine; returns its exit code.
async fn on(app: &App, machine: &Machine<'_>, args: &Args, label: String) -> Result<u8> {
    let shown = app.ui.program(args.raw);
    let name = machine.name();
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
    let account = if args.root { Account::Root } else { Account::User };
    match machine.exec(&args.command, account, &mut on_line).await? {
        ExecEnd::Exited(0) => Ok(exit_code::DONE),
        ExecEnd::Exited(status) => Ok(u8::try_from(status.clamp(1, 255)).unwrap_or(exit_code::FAILED)),
        ExecEnd::Broken => Err(Error::new(ErrorKind::Host, format!("run the command on {name}"))
            .because("a signal ended it, or the connection was lost")),
    }
}
