//! `gpucl logs`.

mod containers;
mod pods;

use std::path::PathBuf;
use std::time::Duration;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Program;
use crate::cli::signals::ctrl_c;
use crate::cli::target::Target;
use crate::cluster::LogFile;
use crate::cluster::{self, Machines};
use crate::error::{Doing as _, Error, ErrorKind, Result};

/// The arguments of `logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// `head`, `worker-0` or `supervisor`; on remote hosts also a service such as `grafana`, or `host-0` for all on it;
    /// default: all
    #[arg(value_name = "NODE|SERVICE|HOST")]
    node: Option<String>,
    /// Keep printing new lines, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Print only this many lines from the end
    #[arg(short = 'n', long, value_name = "LINES")]
    tail: Option<usize>,
    /// On Kubernetes: what the node wrote before it was last started again
    #[arg(long)]
    previous: bool,
    /// Pass colours and control sequences to the terminal; to a file or pipe, output is never changed
    #[arg(long)]
    raw: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> anyhow::Result<u8> {
    let target = Target::choose(app)?;
    let machines = target.machines(app).await?;
    if let Some(found) = machines.pods() {
        return pods::run(app, &args, found).await;
    }
    if args.previous {
        return Err(Error::new(ErrorKind::Unsupported, "show the log of a node's run before")
            .because("its log here goes on when it is started again")
            .into());
    }
    if let Machines::Ssh(remote) = machines.as_ref() {
        return containers::run(app, &args, &target, remote).await;
    }
    if target.is_remote() {
        return Err(cluster::not_running(&target.known.state).into());
    }
    let files = files(&target, args.node.as_deref())?;
    // Listen before anything is printed: the user may press Ctrl-C at once.
    let mut interrupt = match args.follow {
        true => Some(ctrl_c()?),
        false => None,
    };
    let shown = Shown { program: app.ui.program(args.raw), labelled: files.len() > 1 };
    let mut logs: Vec<(String, LogFile)> =
        files.into_iter().map(|(name, path)| (name, LogFile::new(path, args.tail))).collect();
    loop {
        for (name, log) in &mut logs {
            log.read(|line| shown.line(app, name, line))
                .doing(ErrorKind::State, || format!("read the log of {name}"))?;
        }
        let Some(interrupt) = &mut interrupt else { break };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(300)) => {}
            _ = interrupt.recv() => return Ok(exit_code::INTERRUPTED),
        }
    }
    for (name, log) in &mut logs {
        if let Some(line) = log.rest() {
            shown.line(app, name, &line);
        }
    }
    Ok(exit_code::DONE)
}

/// How to print lines.
struct Shown {
    program: Program,
    /// Begin each line with its node's name.
    labelled: bool,
}

impl Shown {
    fn line(&self, app: &App, name: &str, line: &str) {
        if app.json() {
            app.ui.json(&serde_json::json!({ "v": 1, "type": "log_line", "node": name, "line": line }));
        } else if self.labelled {
            self.program.line(&format!("{name:<9} | {line}"));
        } else {
            self.program.line(line);
        }
    }
}

/// The process that watches the nodes; its log is shown only on request.
const SUPERVISOR: &str = "supervisor";

/// The selected log files, with the names of their nodes.
fn files(target: &Target, name: Option<&str>) -> Result<Vec<(String, PathBuf)>> {
    let all = cluster::node_logs(&target.known.state);
    match name {
        None => Ok(all.into_iter().filter(|(name, _)| name != SUPERVISOR).collect()),
        Some(name) => {
            let wanted = |(node, _): &&(String, PathBuf)| node == name || node.replace('-', "") == name;
            match all.iter().find(wanted) {
                Some(found) => Ok(vec![found.clone()]),
                None => {
                    let names: Vec<&str> = all.iter().map(|(node, _)| node.as_str()).collect();
                    Err(Error::new(ErrorKind::NotFound, format!("show the log of {name}"))
                        .because(format!("{} has no such node", target.name))
                        .hint(format!("there are: {}", names.join(", "))))
                }
            }
        }
    }
}
