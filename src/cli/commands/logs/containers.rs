//! Logs of nodes and services on remote hosts, by one exec on each host.

use std::collections::BTreeSet;
use std::sync::Mutex;

use futures_util::future::join_all;

use super::{Args, Shown};
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cli::signals::ctrl_c;
use crate::cli::target::Target;
use crate::cluster::{Remote, RemoteHost};
use crate::error::{Error, ErrorKind, Result};
use crate::host::{ExecEnd, Host as _, Stream};
use crate::name::Key;
use crate::runtime::project::{LogLine, LogRequest, log_line};

/// Prints the logs; lines of several hosts are interleaved as they arrive.
pub(super) async fn run(app: &App, args: &Args, target: &Target, remote: &Remote) -> anyhow::Result<u8> {
    let mut interrupt = ctrl_c()?;
    let wanted = args.node.as_deref().map(|name| name.replace('-', ""));
    let (hosts, container) = chosen(remote, wanted.as_deref());
    let request = LogRequest { container, tail: args.tail, follow: args.follow };
    let shown = Shown { program: app.ui.program(args.raw), labelled: request.container.is_none() };
    let output = Output { known: Mutex::default(), shown };
    let shows = hosts.iter().map(|host| on(app, remote, host, &request, &output));
    let ends = tokio::select! {
        ends = join_all(shows) => ends,
        _ = interrupt.recv() => return Ok(exit_code::INTERRUPTED),
    };
    for end in ends {
        end?;
    }
    let known = output.known.into_inner().unwrap_or_default();
    match request.container {
        Some(container) if !known.contains(&container) => {
            let names: Vec<String> = known.iter().map(|key| display(key)).collect();
            let error = Error::new(
                ErrorKind::NotFound,
                format!("show the log of {}", args.node.as_deref().unwrap_or_default()),
            );
            Err(if names.is_empty() {
                error.because(format!("nothing of {} is running", target.name))
            } else {
                error
                    .because(format!("{} has no such node or service", target.name))
                    .hint(format!("there are: {}", names.join(", ")))
            }
            .into())
        }
        _ => Ok(exit_code::DONE),
    }
}

/// The names of the logs found so far, and how to print lines.
struct Output {
    known: Mutex<BTreeSet<String>>,
    shown: Shown,
}

/// The hosts to ask, and the node or service to ask for: a host's name selects everything on it.
fn chosen<'a>(remote: &'a Remote, wanted: Option<&str>) -> (Vec<&'a RemoteHost>, Option<String>) {
    let Some(wanted) = wanted else { return (remote.hosts.iter().collect(), None) };
    if let Some(host) = remote.hosts.iter().find(|host| host.key.as_str() == wanted) {
        return (vec![host], None);
    }
    // A node's host is known; a service may be on any of them.
    let of_node: Vec<&RemoteHost> =
        remote.hosts.iter().filter(|host| host.names.iter().any(|name| name.replace('-', "") == wanted)).collect();
    let hosts = if of_node.is_empty() { remote.hosts.iter().collect() } else { of_node };
    (hosts, Some(wanted.to_owned()))
}

async fn on(app: &App, remote: &Remote, host: &RemoteHost, request: &LogRequest, output: &Output) -> Result<()> {
    let ssh = remote.connect(host).await?;
    let ssh = ssh.by(host.runtime.account());
    let mut words = Vec::new();
    let mut on_line = |stream: Stream, line: &str| match log_line(line) {
        Some(LogLine::Known(key)) => {
            if let Ok(mut known) = output.known.lock() {
                known.insert(key.to_owned());
            }
        }
        Some(LogLine::Line(key, text)) => output.shown.line(app, &display(key), text),
        None if stream == Stream::Err => words.push(line.to_owned()),
        None => {}
    };
    let end =
        ssh.exec(&host.runtime.logs_script(&host.tag.to_string(), &host.folders(), request), &mut on_line).await?;
    let failed = || Error::new(ErrorKind::Host, format!("show the logs of {}", host.name()));
    match end {
        ExecEnd::Exited(0) => Ok(()),
        ExecEnd::Broken if request.follow => {
            Err(failed().because("the connection was lost, or nothing runs there any more"))
        }
        _ if words.is_empty() => Err(failed().because("the log program on the host ended early")),
        _ => Err(failed().because(words.join("\n"))),
    }
}

/// `worker-0` for `worker0`.
fn display(key: &str) -> String {
    key.parse::<Key>().map_or_else(|_| key.to_owned(), |key| key.display_name())
}
