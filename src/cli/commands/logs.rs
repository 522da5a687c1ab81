//! `gpucl logs`.

mod containers;
mod file;

use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use self::file::LogFile;
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::output::Program;
use crate::cli::target::Target;
use crate::cluster;
use crate::error::{Doing as _, Error, ErrorKind, Result};

/// The arguments of `logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// `head`, `worker-0`, or `supervisor`; of containers also a service such as `grafana`, or `host-0` for all on it; all when absent
    #[arg(value_name = "NODE|SERVICE|HOST")]
    node: Option<String>,
    /// Go on printing what comes, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines
    #[arg(short = 'n', long, value_name = "LINES")]
    tail: Option<usize>,
    /// Let the terminal have colours and all else as it comes; to a file or a program it always goes so
    #[arg(long)]
    raw: bool,
}

pub(crate) async fn run(app: &App, args: Args) -> Result<u8> {
    let target = Target::choose(app)?;
    if target.is_remote() {
        return containers::run(app, &args, &target).await;
    }
    let files = files(&target, args.node.as_deref())?;
    // Listened for before anything is printed: who reads it may press Ctrl-C at once.
    let mut interrupt = match args.follow {
        true => Some(signal(SignalKind::interrupt()).doing(ErrorKind::Internal, || "listen for Ctrl-C".to_owned())?),
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

/// How lines are shown.
struct Shown {
    program: Program,
    /// Each with its node's name.
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

/// What looks after the nodes; its log is shown when it is asked for.
const SUPERVISOR: &str = "supervisor";

/// The log files that are meant, by the names of their nodes.
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
