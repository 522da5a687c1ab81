//! The logs of nodes and services.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;

use super::here::Here;
use super::log_file::LogFile;
use super::pods::{Pods, short};
use super::ssh::{Remote, RemoteHost};
use super::{Kind, Machines};
use crate::cluster::errors::not_running;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::{ExecEnd, Host as _, Stream};
use crate::name::{ClusterName, Key};
use crate::provider::platform::{LogOptions, Part};
use crate::runtime::project::{LogLine, LogRequest, log_line};

/// How soon a new line of a log on this machine is seen.
const LOOKS_AGAIN: Duration = Duration::from_millis(300);

/// Which logs, and how much of them.
pub struct Logs<'a> {
    /// A node, a service or a host; all nodes when absent.
    pub of: Option<&'a str>,
    /// Only this many lines from the end of each.
    pub tail: Option<usize>,
    /// Go on with new lines.
    pub follow: bool,
    /// Of a node's run before its last restart.
    pub previous: bool,
}

/// A line of a log.
pub struct NodeLine<'a> {
    /// The node or service that has written it.
    pub node: &'a str,
    /// Its text.
    pub text: &'a str,
    /// Whether lines of others may come as well.
    pub is_of_several: bool,
}

/// Takes each line, as it arrives.
pub(super) type OnNodeLine<'a> = &'a (dyn Fn(NodeLine<'_>) + Sync);

impl Machines {
    /// Reads logs; lines of several nodes are interleaved as they arrive.
    ///
    /// # Errors
    /// If there is no node of that name, or a log cannot be read.
    pub async fn logs(&self, cluster: &ClusterName, logs: &Logs<'_>, on_line: OnNodeLine<'_>) -> Result<()> {
        if logs.previous && self.pods().is_none() {
            return Err(Error::new(ErrorKind::Unsupported, "show the log of a node's run before")
                .because("its log here goes on when it is started again"));
        }
        match &self.0 {
            Kind::Here(here) if here.state.is_here() => of_files(here, logs, on_line).await,
            Kind::Here(here) => Err(not_running(&here.state)),
            Kind::Ssh(remote) => of_hosts(remote, cluster, logs, on_line).await,
            Kind::Pods(pods) => of_pods(pods, logs, on_line).await,
        }
    }
}

/// Reads the logs of this machine.
async fn of_files(here: &Here, logs: &Logs<'_>, on_line: OnNodeLine<'_>) -> Result<()> {
    let files = files(here, logs.of)?;
    let is_of_several = files.len() > 1;
    let mut files: Vec<(String, LogFile)> =
        files.into_iter().map(|(node, path)| (node, LogFile::new(path, logs.tail))).collect();
    loop {
        for (node, file) in &mut files {
            file.read(|text| on_line(NodeLine { node, text, is_of_several }))
                .doing(ErrorKind::State, || format!("read the log of {node}"))?;
        }
        if !logs.follow {
            break;
        }
        tokio::time::sleep(LOOKS_AGAIN).await;
    }
    for (node, file) in &mut files {
        if let Some(text) = file.rest() {
            on_line(NodeLine { node, text: &text, is_of_several });
        }
    }
    Ok(())
}

/// The chosen log files, with the names of their nodes; those of services and of the supervisor only on request.
fn files(here: &Here, of: Option<&str>) -> Result<Vec<(String, PathBuf)>> {
    let mut all = here.logs();
    let Some(name) = of else { return Ok(all) };
    all.extend(here.logs_beside());
    match all.iter().find(|(node, _)| node == name || node.replace('-', "") == name) {
        Some(found) => Ok(vec![found.clone()]),
        None => {
            let names: Vec<&str> = all.iter().map(|(node, _)| node.as_str()).collect();
            Err(Error::new(ErrorKind::NotFound, format!("show the log of {name}"))
                .because(format!("{} has no such node or service", here.state.name))
                .hint(format!("there are: {}", names.join(", "))))
        }
    }
}

/// Reads the logs of pods, through their platform.
async fn of_pods(pods: &Pods, logs: &Logs<'_>, on_line: OnNodeLine<'_>) -> Result<()> {
    let guard = Key::guard().display_name();
    let (chosen, part) = match logs.of {
        Some(name) if name == guard => (vec![pods.named("head").await?], Part::Guard),
        Some(name) => (vec![pods.named(name).await?], Part::Ray),
        None => (pods.members().await?, Part::Ray),
    };
    let (platform, is_of_several) = (pods.platform()?, chosen.len() > 1);
    let tail = logs.tail.map(|lines| u32::try_from(lines).unwrap_or(u32::MAX));
    let options = LogOptions { part, tail, follow: logs.follow, previous: logs.previous };
    let each = chosen.iter().map(async |member| {
        let node = if part == Part::Guard { guard.clone() } else { short(pods.scope(), member) };
        platform.logs(&member.name, &options, &mut |text| on_line(NodeLine { node: &node, text, is_of_several })).await
    });
    all_of(each).await
}

/// Reads the logs of hosts, by one exec on each.
async fn of_hosts(remote: &Remote, cluster: &ClusterName, logs: &Logs<'_>, on_line: OnNodeLine<'_>) -> Result<()> {
    let wanted = logs.of.map(|name| name.replace('-', ""));
    let (hosts, container) = chosen(remote, wanted.as_deref());
    let request = LogRequest { container, tail: logs.tail, follow: logs.follow };
    let known = Mutex::default();
    all_of(hosts.iter().map(|host| of_host(remote, host, &request, &known, on_line))).await?;
    let known: BTreeSet<String> = known.into_inner().unwrap_or_default();
    let Some(container) = request.container.filter(|container| !known.contains(container)) else { return Ok(()) };
    let error = Error::new(ErrorKind::NotFound, format!("show the log of {}", logs.of.unwrap_or(&container)));
    if known.is_empty() {
        return Err(error.because(format!("nothing of {cluster} is running")));
    }
    let names: Vec<String> = known.iter().map(|key| display(key)).collect();
    Err(error
        .because(format!("{cluster} has no such node or service"))
        .hint(format!("there are: {}", names.join(", "))))
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

async fn of_host(
    remote: &Remote,
    host: &RemoteHost,
    request: &LogRequest,
    known: &Mutex<BTreeSet<String>>,
    on_line: OnNodeLine<'_>,
) -> Result<()> {
    let ssh = remote.connect(host).await?.by(host.runtime.account());
    let mut words = Vec::new();
    let mut take = |stream: Stream, line: &str| match log_line(line) {
        Some(LogLine::Known(key)) => {
            if let Ok(mut known) = known.lock() {
                known.insert(key.to_owned());
            }
        }
        Some(LogLine::Line(key, text)) => {
            on_line(NodeLine { node: &display(key), text, is_of_several: request.container.is_none() });
        }
        None if stream == Stream::Err => words.push(line.to_owned()),
        None => {}
    };
    let end = ssh.exec(&host.runtime.logs_script(&host.tag.to_string(), &host.folders(), request), &mut take).await?;
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

/// Waits for all, and then fails as the first that has failed.
async fn all_of(each: impl Iterator<Item = impl Future<Output = Result<()>>>) -> Result<()> {
    join_all(each).await.into_iter().collect()
}
