//! `gpucl logs`.

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::signals::ctrl_c;
use crate::cli::target::Target;
use crate::cluster::{Logs, NodeLine};

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
    // Listen before anything is printed: the user may press Ctrl-C at once. A file of this machine is read in one go.
    let mut interrupt = if args.follow || target.is_remote() { Some(ctrl_c()?) } else { None };
    let interrupted = async {
        match &mut interrupt {
            Some(interrupt) => drop(interrupt.recv().await),
            None => std::future::pending().await,
        }
    };
    let shown = app.ui.program(args.raw);
    let show = |NodeLine { node, text, is_of_several }: NodeLine<'_>| {
        if app.json() {
            app.ui.json(&serde_json::json!({ "v": 1, "type": "log_line", "node": node, "line": text }));
        } else if is_of_several {
            shown.line(&format!("{node:<9} | {text}"));
        } else {
            shown.line(text);
        }
    };
    let Args { node, follow, tail, previous, .. } = args;
    let logs = Logs { of: node.as_deref(), tail, follow, previous };
    tokio::select! {
        read = machines.logs(&target.name, &logs, &show) => read?,
        () = interrupted => return Ok(exit_code::INTERRUPTED),
    }
    Ok(exit_code::DONE)
}
