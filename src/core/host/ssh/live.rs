//! One connection: our own `ssh` master, and the socket that keeps it alive while we run.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use openssh::Session;
use tokio::net::UnixStream;

use super::config::{Trust, known_hosts_option};
use super::trouble::{Cause, Trouble};
use crate::error::{Doing as _, ErrorKind, Result};
use crate::util::child;
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_tail, remove_tree};
use crate::util::process::Identity;
use crate::util::runtime_dir::make_runtime_dir;

/// How long a master outlives a killed gpucl, which no longer holds its line (seconds).
const ORPHAN: u32 = 30;
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
    /// Connects once; with `known_hosts` only to a machine whose key is in that file.
    pub(super) async fn connect(
        name: String,
        config: PathBuf,
        trust: Trust,
        known_hosts: Option<PathBuf>,
        control: Arc<ControlDir>,
    ) -> std::result::Result<Self, Trouble> {
        // In its own task: when this future is dropped, `ssh` goes on, and the connection it opens must still be
        // closed.
        let attempt = tokio::spawn(async move {
            let connected = launch(&name, &config, trust, known_hosts.as_deref(), control.path()).await;
            drop(control);
            connected
        });
        let other = |said: String| Trouble { cause: Cause::Other, said };
        let session = match tokio::time::timeout(ATTEMPT, attempt).await {
            Ok(Ok(session)) => session?,
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

/// Starts a master, which goes to the background as soon as it is connected.
async fn launch(
    name: &str,
    config: &Path,
    trust: Trust,
    known_hosts: Option<&Path>,
    sockets: &Path,
) -> std::result::Result<Session, Trouble> {
    let other = |error: std::io::Error| Trouble { cause: Cause::Other, said: error.to_string() };
    let folder = tempfile::Builder::new().prefix(".ssh-connection").tempdir_in(sockets).map_err(other)?;
    let log = folder.path().join("log");
    let unknown_keys = if trust == Trust::FirstUse { "accept-new" } else { "yes" };
    let known_hosts =
        known_hosts.map(known_hosts_option).transpose().map_err(|error| other(std::io::Error::other(error)))?;
    let status = child::async_command("ssh")
        .args(known_hosts.iter().flat_map(|option| ["-o", option]))
        .arg("-E")
        .arg(&log)
        .arg("-S")
        // Where `Session` expects it.
        .arg(folder.path().join("master"))
        .args(["-M", "-f", "-N", "-o", &format!("ControlPersist={ORPHAN}s"), "-o", "BatchMode=yes"])
        .args(["-o", &format!("StrictHostKeyChecking={unknown_keys}"), "-F"])
        .arg(config)
        .arg(name)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await;
    match status {
        Ok(status) if status.success() => Ok(Session::new_native_mux(folder)),
        Ok(_) => {
            let said = read_tail(&log, RECORD_LIMIT).unwrap_or_default();
            Err(Trouble::of(said.trim().trim_start_matches("ssh: ")))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Trouble { cause: Cause::NoProgram, said: error.to_string() })
        }
        Err(error) => Err(other(error)),
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
