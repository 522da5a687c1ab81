//! One host: execs over one connection, made anew when it broke.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use openssh::{ForwardType, Session, Socket, Stdio};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::sync::{Mutex, Semaphore};

use super::{Connections, SshTarget};
use crate::error::{Error, ErrorKind, Result, Status};
use crate::host::{ExecEnd, Host, OnLine, Stream, lines};

/// How many channels a connection carries at once: the server's default limit is 10 (`MaxSessions`).
const CHANNELS: usize = 8;
/// How long a connection that broke may take to be made anew.
const COMES_BACK_WITHIN: Duration = Duration::from_secs(60);
/// How long a machine may take to start anew: the self-test of large machines takes 5 to 15 minutes.
const STARTS_WITHIN: Duration = Duration::from_secs(20 * 60);
/// Where programs of all clusters on a machine meet.
const LOCK: &str = "/var/lib/gpucl/lock";

/// A host that is reached by SSH. Its programs run as root.
#[derive(Debug)]
pub struct SshHost {
    connections: Connections,
    name: String,
    home: String,
    target: SshTarget,
    session: Mutex<Option<Arc<Session>>>,
    channels: Semaphore,
}

impl SshHost {
    pub(super) fn new(
        connections: Connections,
        name: String,
        home: String,
        target: SshTarget,
        session: Session,
    ) -> Self {
        Self {
            connections,
            name,
            home,
            target,
            session: Mutex::new(Some(Arc::new(session))),
            channels: Semaphore::new(CHANNELS),
        }
    }

    /// The connection; made anew when there is none that works.
    async fn session(&self, wait: Duration) -> Result<Arc<Session>> {
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref() {
            return Ok(session.clone());
        }
        let new = Arc::new(self.connections.session(&self.name, &self.target, wait).await?);
        *session = Some(new.clone());
        Ok(new)
    }

    /// Lets go of the connection: the next exec makes a new one.
    pub async fn disconnect(&self) {
        let session = self.session.lock().await.take();
        if let Some(session) = session.and_then(Arc::into_inner) {
            let _ = tokio::time::timeout(Duration::from_secs(5), session.close()).await;
        }
    }

    /// Whether the connection works: asks its master, not the host.
    pub async fn is_connected(&self) -> bool {
        let session = self.session.lock().await.clone();
        match session {
            Some(session) => session.check().await.is_ok(),
            None => false,
        }
    }

    /// From now on connections to this socket on this machine are connections to `to` on the host.
    pub async fn forward(&self, socket: &Path, to: (&str, u16)) -> Result<()> {
        let session = self.session(COMES_BACK_WITHIN).await?;
        let _ = fs_err::remove_file(socket);
        let listen = Socket::UnixSocket { path: socket.into() };
        let connect = Socket::TcpSocket { host: to.0.into(), port: to.1 };
        session.request_port_forward(ForwardType::Local, listen, connect).await.map_err(|error| {
            Error::new(ErrorKind::Host, format!("forward {}:{} of {}", to.0, to.1, self.name))
                .status(Status::Temporary)
                .because(error)
        })
    }

    /// Runs a program as the user that logs in, not as root.
    pub async fn exec_as_user(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        self.run("sh -s", program, on_line).await
    }

    async fn run(&self, command: &str, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        let doing = || format!("run a shell program on {}", self.name);
        let failed =
            |error: openssh::Error| Error::new(ErrorKind::Host, doing()).status(Status::Temporary).because(error);
        let _channel = self.channels.acquire().await;
        let session = self.session(COMES_BACK_WITHIN).await?;
        let spawned = session
            .raw_command(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .await;
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                drop(session);
                self.disconnect().await;
                return Err(failed(error));
            }
        };
        let pipes = (child.stdin().take(), child.stdout().take(), child.stderr().take());
        let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(Error::new(ErrorKind::Internal, doing()).because("its pipes are missing"));
        };
        let feed = async move {
            let _ = stdin.write_all(program.as_bytes()).await;
            let _ = stdin.shutdown().await;
            drop(stdin);
        };
        let mut needs_password = false;
        let mut on_line = |stream: Stream, line: &str| {
            needs_password |= stream == Stream::Err && line.contains("a password is required");
            on_line(stream, line);
        };
        let read = lines::read(BufReader::new(stdout), BufReader::new(stderr), &mut on_line);
        tokio::join!(feed, read);
        let end = match child.wait().await {
            Ok(status) => status.code().map_or(ExecEnd::Broken, ExecEnd::Exited),
            Err(_) => ExecEnd::Broken,
        };
        if needs_password {
            return Err(Error::new(ErrorKind::Host, format!("become root on {}", self.name))
                .because("sudo asks for a password there")
                .hint("let the user become root without one: echo \"$USER ALL=(ALL) NOPASSWD:ALL\" | sudo tee /etc/sudoers.d/$USER")
                .hint("or log in as root: `user: root` in the spec"));
        }
        if end == ExecEnd::Broken {
            // A signal to the program looks the same: only where the master is gone as well is a new connection made.
            let gone = session.check().await.is_err();
            drop(session);
            if gone {
                self.disconnect().await;
            }
        }
        Ok(end)
    }
}

#[async_trait]
impl Host for SshHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn home(&self) -> &str {
        &self.home
    }

    fn lock(&self) -> String {
        LOCK.to_owned()
    }

    fn reboot_limit(&self) -> Option<Duration> {
        Some(STARTS_WITHIN)
    }

    async fn rebooted(&self, wait: Duration) -> Result<()> {
        self.disconnect().await;
        self.session(wait).await.map(|_| ())
    }

    async fn exec(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        // The login shell may be any; who is root already needs no sudo, and may not have it.
        self.run("sh -c 'if [ \"$(id -u)\" = 0 ]; then exec sh -s; else exec sudo -n -- sh -s; fi'", program, on_line)
            .await
    }
}
