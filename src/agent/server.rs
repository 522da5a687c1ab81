//! The agent itself.

use std::io::Write as _;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};

use super::protocol::{Answer, MESSAGE_LIMIT, Request, VERSION, is_of_this_user, socket};
use super::supervise::{Change, Nodes};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::Scope;
use crate::runtime::native::{ClusterProcesses, Launch};
use crate::state::{Paths, Record, Store};
use crate::util::fs;

/// How often processes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long the last agent may take to be gone altogether.
const LOCK_LIMIT: Duration = Duration::from_secs(2);

/// What an agent needs to know.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The user's folders.
    pub paths: Paths,
    /// Whose agent it is.
    pub scope: Scope,
}

/// Serves until it is told to end, or until its cluster is gone.
pub async fn serve(config: AgentConfig) -> Result<()> {
    let doing = || format!("serve as the agent of {}", config.scope.cluster);
    // Away from the terminal: it outlives the command that started it. It fails only for a process that leads a group already.
    let _ = rustix::process::setsid();
    // What came of a node whose reaper is killed becomes a child of this process.
    let subreaper = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    subreaper.map_err(std::io::Error::from).doing(ErrorKind::Internal, doing)?;
    let path = socket(&config.paths.runtime, &config.scope);
    if let Some(folder) = path.parent() {
        crate::util::runtime_dir::make_runtime_dir(folder)?;
    }
    // One agent per cluster: the lock is held for as long as the process lives, whatever becomes of the socket.
    let lock = fs::open_append(&path.with_extension("lock")).doing(ErrorKind::State, doing)?;
    // One that was just ended may hold it until its last thread is gone.
    let begun = Instant::now();
    while lock.try_lock().is_err() {
        if begun.elapsed() < LOCK_LIMIT {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        }
        return Err(Error::new(ErrorKind::Locked, doing()).because("another agent of this cluster runs already"));
    }
    let _ = fs_err::remove_file(&path);
    let listener = UnixListener::bind(&path).doing(ErrorKind::State, doing)?;
    say(&format!("agent {} of {} listens on {}", env!("CARGO_PKG_VERSION"), config.scope.cluster, path.display()));

    let mut nodes = Nodes::new(ClusterProcesses::new(&config.scope, &config.paths.data));
    if let Some(store) = Store::open(&config.paths, &config.scope.cluster)? {
        nodes.restart = store.state().ready_since.is_some();
        nodes.take_over(launches(&config.paths, &config.scope));
    }
    let mut terminate = signal(SignalKind::terminate()).doing(ErrorKind::Internal, doing)?;
    let mut tick = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            connection = listener.accept() => {
                let Ok((stream, _)) = connection else { continue };
                if !is_of_this_user(&stream) {
                    continue;
                }
                if answer(stream, &config, &mut nodes).await {
                    break;
                }
            }
            _ = tick.tick() => {
                report(&config, nodes.look());
                nodes.end_adopted().await;
                let gone = matches!(Store::open(&config.paths, &config.scope.cluster), Ok(None));
                if gone && (nodes.is_empty() || nodes.status().iter().all(|node| !node.alive)) {
                    say("the cluster is gone");
                    break;
                }
            }
            _ = terminate.recv() => break,
        }
    }
    // With this process its orphans would be lost.
    nodes.end_adopted().await;
    let _ = fs_err::remove_file(&path);
    let _ = fs_err::remove_file(path.with_extension("lock"));
    say("the agent ends; nodes go on");
    Ok(())
}

/// Answers one question; hands back whether the agent is to end.
async fn answer(stream: UnixStream, config: &AgentConfig, nodes: &mut Nodes) -> bool {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let read =
        tokio::time::timeout(Duration::from_secs(5), BufReader::new(read.take(MESSAGE_LIMIT)).read_line(&mut line))
            .await;
    if !matches!(read, Ok(Ok(length)) if length > 0) {
        return false;
    }
    let mut answer = Answer { v: VERSION, agent: env!("CARGO_PKG_VERSION").to_owned(), ..Answer::default() };
    let mut end = false;
    match serde_json::from_str::<Request>(&line) {
        // Who asks sees a node's end before the agent would by itself.
        Ok(Request::Status) => report(config, nodes.look()),
        Ok(Request::Start { launch }) => match nodes.start(*launch) {
            Ok(identity) => answer.id = Some(identity.to_string()),
            Err(error) => answer.error = Some(error),
        },
        Ok(Request::LetGo { key }) => {
            nodes.let_go(&key);
            nodes.end_adopted().await;
        }
        Ok(Request::Supervise) => nodes.restart = true,
        Ok(Request::End) => end = true,
        Err(error) => answer.error = Some(format!("it does not understand the question: {error}")),
    }
    answer.nodes = nodes.status();
    let mut text = serde_json::to_string(&answer).unwrap_or_default();
    text.push('\n');
    let _ = tokio::time::timeout(Duration::from_secs(5), write.write_all(text.as_bytes())).await;
    end
}

/// Writes down what became of nodes.
fn report(config: &AgentConfig, changes: Vec<Change>) {
    for change in changes {
        let record = match change {
            Change::Ended(key, how) => {
                say(&format!("{} ended: {how}", key.display_name()));
                Record::NodeEnded { key, how }
            }
            Change::Restarted(key, identity) => {
                say(&format!("{} was started again as process {}", key.display_name(), identity.pid));
                Record::Exists { key, id: identity.to_string() }
            }
        };
        if let Err(error) = Store::append_from_agent(&config.paths, &config.scope.cluster, &record) {
            say(&error.to_string());
        }
    }
}

/// The launches of all nodes that this cluster's hosts on this machine hold.
fn launches(paths: &Paths, scope: &Scope) -> Vec<Launch> {
    let Ok(hosts) = fs_err::read_dir(paths.data.join("hosts")) else { return Vec::new() };
    let ours = hosts.flatten().filter(|host| {
        host.file_name().to_str().and_then(|name| name.parse().ok()).is_some_and(|tag| scope.holds(&tag))
    });
    let mut launches = Vec::new();
    for host in ours {
        let Ok(files) = fs_err::read_dir(host.path().join("nodes")) else { continue };
        for file in files.flatten() {
            let launch = fs::read_within(&file.path(), fs::RECORD_LIMIT)
                .ok()
                .and_then(|bytes| serde_json::from_slice(&bytes).ok());
            launches.extend(launch);
        }
    }
    launches
}

/// Says something in the agent's log, which is its standard error.
fn say(text: &str) {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let _ = writeln!(std::io::stderr().lock(), "{now} {text}");
}
