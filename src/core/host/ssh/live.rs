//! One connection: our own `ssh` master, and the socket that keeps it alive while we run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use openssh::{ControlPersist, KnownHosts, Session, SessionBuilder};
use tokio::net::UnixStream;

use super::config::Trust;
use super::trouble::{Cause, Trouble};
use crate::error::{Doing as _, ErrorKind, Result};
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_tail, remove_tree};
use crate::util::process::Identity;
use crate::util::runtime_dir::make_runtime_dir;

/// How long a master outlives a killed gpucl, which no longer holds its line (seconds).
const ORPHAN: std::num::NonZeroUsize = match std::num::NonZeroUsize::new(30) {
    Some(seconds) => seconds,
    None => std::num::NonZeroUsize::MIN,
};
/// How long one attempt may take; `ssh` limits only the time to reach the server, not what follows.
const ATTEMPT: Duration = Duration::from_secs(90);

/// The folder of this process's masters, below the runtime folder; removed with the last of them.
#[derive(Debug)]
pub(super) struct ControlDir {
    runtime: PathBuf,
    path: PathBuf,
}

impl ControlDir {
    pub(super) fn new(runtime: PathBuf) -> Self {
        let me = std::process::id();
        let start = Identity::of(me).map_or(0, |me| me.start);
        Self { path: runtime.join(format!("ssh-{me}-{start}")), runtime }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder above, for sockets of several processes.
    pub(super) fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// Creates it, and removes those of processes that no longer run.
    pub(super) fn create(&self) -> Result<()> {
        make_runtime_dir(&self.runtime)?;
        for entry in fs_err::read_dir(&self.runtime).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some((pid, start)) =
                name.to_str().and_then(|name| name.strip_prefix("ssh-")).and_then(|name| name.split_once('-'))
            else {
                continue;
            };
            let (Ok(pid), Ok(start)) = (pid.parse::<u32>(), start.parse::<u64>()) else { continue };
            if Identity::of(pid).is_none_or(|process| process.start != start) {
                // Their masters end on their own: nobody holds their line.
                let _ = remove_tree(&entry.path());
            }
        }
        create_private_dir(&self.path).doing(ErrorKind::Host, || format!("create the folder {}", self.path.display()))
    }
}

impl Drop for ControlDir {
    fn drop(&mut self) {
        // Not empty, so kept, while another connection of this process is in use.
        let _ = fs_err::remove_dir(&self.path);
        let _ = fs_err::remove_dir(&self.runtime);
    }
}

/// One open connection. Dropping it ends the master as soon as its last exec has ended.
#[derive(Debug)]
pub(super) struct Live {
    /// Open while we run: a master without such a line and without an exec ends after [`ORPHAN`]. Dropped first.
    line: UnixStream,
    pub(super) session: Arc<Session>,
    /// What `ssh` printed while it connected.
    pub(super) said: String,
}

impl Live {
    /// Connects once.
    pub(super) async fn connect(
        name: String,
        config: PathBuf,
        trust: Trust,
        control: Arc<ControlDir>,
    ) -> std::result::Result<Self, Trouble> {
        let mut builder = SessionBuilder::default();
        builder
            .known_hosts_check(if trust == Trust::FirstUse { KnownHosts::Add } else { KnownHosts::Strict })
            .control_directory(control.path())
            .control_persist(ControlPersist::IdleFor(ORPHAN))
            .config_file(config);
        // In its own task: when this future is dropped, `ssh` goes on, and the connection it opens must still be
        // closed.
        let attempt = tokio::spawn(async move {
            let connected = builder.connect_mux(name).await;
            drop(control);
            connected
        });
        let other = |said: String| Trouble { cause: Cause::Other, said };
        let session = match tokio::time::timeout(ATTEMPT, attempt).await {
            Ok(Ok(Ok(session))) => session,
            Ok(Ok(Err(openssh::Error::Connect(error)))) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Trouble { cause: Cause::NoProgram, said: error.to_string() });
            }
            Ok(Ok(Err(openssh::Error::Connect(error)))) => return Err(Trouble::of(&error.to_string())),
            Ok(Ok(Err(error))) => return Err(other(with_sources(&error))),
            Ok(Err(error)) => return Err(other(error.to_string())),
            Err(_) => {
                return Err(Trouble {
                    cause: Cause::TimedOut,
                    said: format!("it answered, but did not connect within {} s", ATTEMPT.as_secs()),
                });
            }
        };
        let socket = session.control_socket();
        let log = socket.with_file_name("log");
        let said = read_tail(&log, RECORD_LIMIT).unwrap_or_default();
        match UnixStream::connect(socket).await {
            Ok(line) => Ok(Self { line, session: Arc::new(session), said }),
            Err(error) => {
                Err(Trouble { cause: Cause::HungUp, said: format!("the connection was lost at once: {error}") })
            }
        }
    }

    /// Uses a connection that the user keeps open. Dropping this leaves it as it is.
    pub(super) async fn join(socket: &Path) -> std::result::Result<Self, Trouble> {
        let session = Session::resume_mux(socket.into(), None);
        match UnixStream::connect(socket).await {
            Ok(line) => Ok(Self { line, session: Arc::new(session), said: String::new() }),
            Err(error) => Err(Trouble {
                cause: Cause::Other,
                said: format!("the connection that you kept open ({}) is gone: {error}", socket.display()),
            }),
        }
    }

    /// Whether the master is running.
    pub(super) fn is_alive(&self) -> bool {
        let mut bytes = [0_u8; 256];
        loop {
            match self.line.try_read(&mut bytes) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Waits until the master has ended.
    pub(super) async fn ended(&self) {
        while self.is_alive() {
            if self.line.readable().await.is_err() {
                return;
            }
        }
    }
}

/// An error of the `openssh` crate with its sources, on one line.
pub(super) fn with_sources(error: &openssh::Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        texts.push(source.to_string());
        next = source.source();
    }
    texts.dedup();
    texts.join(": ")
}
