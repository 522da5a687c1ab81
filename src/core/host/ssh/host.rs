//! A host over SSH: each exec is one session of the shared connection; a lost connection is re-established.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use openssh::{Child, Session, Stdio};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

use super::greeting::Beginning;
use super::live::{Live, with_sources};
use super::route::Route;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::host::lines::follow;
use crate::host::{Account, ExecEnd, Host, OnLine, Stream};

/// How many channels may be open at once: a server allows ten sessions by default, and the user may want one.
const CHANNELS: usize = 8;
/// How long to retry when the server has no session left.
const NO_SESSION_LEFT: Duration = Duration::from_secs(30);

/// How long a reboot may take: the self-test of a large machine takes 5 to 15 minutes.
const STARTS_WITHIN: Duration = Duration::from_secs(20 * 60);

/// A host over SSH. Clones share one connection.
#[derive(Debug, Clone)]
pub struct SshHost {
    pub(super) shared: Arc<Shared>,
    as_root: bool,
}

/// State shared by the clones.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) route: Arc<Route>,
    live: Mutex<Option<Arc<Live>>>,
    channels: Semaphore,
    /// The forwards to open on every new connection: local sockets and their destinations.
    pub(super) forwards: std::sync::Mutex<BTreeMap<PathBuf, (String, u16)>>,
}

/// A running command, with the session it occupies.
pub(super) struct Channel<'a> {
    pub(super) child: Child<Arc<Session>>,
    /// Where its output begins.
    pub(super) begins: Beginning,
    /// Keeps the connection open while the command runs.
    live: Arc<Live>,
    _permit: SemaphorePermit<'a>,
}

impl SshHost {
    pub(super) fn new(route: Arc<Route>, live: Live) -> Self {
        let shared = Shared {
            route,
            live: Mutex::new(Some(Arc::new(live))),
            channels: Semaphore::new(CHANNELS),
            forwards: std::sync::Mutex::default(),
        };
        Self { shared: Arc::new(shared), as_root: true }
    }

    /// This host over this connection, with programs run as the login user.
    #[must_use]
    pub fn as_user(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), as_root: false }
    }

    /// This host over this connection, with programs run as this account.
    #[must_use]
    pub fn by(&self, account: Account) -> Self {
        Self { shared: Arc::clone(&self.shared), as_root: account == Account::Root }
    }

    /// The login user.
    pub fn user(&self) -> &str {
        self.shared.route.block.user()
    }

    /// The name or address that `ssh` connects to.
    pub fn address(&self) -> &str {
        self.shared.route.block.address()
    }

    /// A separate, really new connection to the same host, which its firewall must let in.
    ///
    /// # Errors
    /// When the host does not answer within the wait given to [`Connections::connect`](super::Connections::connect).
    pub async fn fresh(&self) -> Result<Self> {
        let live = self.shared.route.connect().await?;
        let new = Self::new(Arc::clone(&self.shared.route), live);
        Ok(if self.as_root { new } else { new.as_user() })
    }

    /// Whether the connection is up, as far as this machine knows; asks the host nothing.
    pub async fn is_connected(&self) -> bool {
        self.shared.live.lock().await.as_ref().is_some_and(|live| live.is_alive())
    }

    /// Waits until the connection is lost; returns at once when there is none.
    pub async fn lost(&self) {
        let live = self.shared.live.lock().await.clone();
        if let Some(live) = live {
            live.ended().await;
        }
    }

    /// Re-establishes the connection and its forwards if it was lost.
    ///
    /// # Errors
    /// When the host does not answer within the wait given to [`Connections::connect`](super::Connections::connect).
    pub async fn reconnect(&self) -> Result<()> {
        self.shared.live().await.map(|_| ())
    }

    /// Drops the connection from before a reboot and reconnects; the host may take `wait` to come back.
    ///
    /// # Errors
    /// When it does not come back in time.
    pub async fn after_reboot(&self, wait: Duration) -> Result<()> {
        let begun = Instant::now();
        drop(self.shared.live.lock().await.take());
        loop {
            match self.shared.live().await {
                Ok(_) => return Ok(()),
                Err(error) if error.retry_status() == Status::Permanent || begun.elapsed() >= wait => {
                    return Err(error.while_doing(format!("reach {} after its reboot", self.name())));
                }
                Err(_) => tokio::time::sleep(Duration::from_secs(2)).await,
            }
        }
    }

    /// Forwards a local socket to an address and port as the host sees them; kept across reconnects.
    ///
    /// Only this user can use the socket: its folder is private.
    ///
    /// # Errors
    /// When the socket cannot be created. Whether anything listens at the other end shows at the first use.
    pub async fn forward(&self, socket: &Path, to: (&str, u16)) -> Result<()> {
        let live = self.shared.live().await?;
        super::forward::open(&live, self.shared.route.block.name(), socket, to).await?;
        self.shared.forwards().insert(socket.to_owned(), (to.0.to_owned(), to.1));
        Ok(())
    }

    /// Closes the connection and removes its sockets from this machine.
    pub async fn close(self) {
        for socket in std::mem::take(&mut *self.shared.forwards()).into_keys() {
            let _ = fs_err::remove_file(socket);
        }
        drop(self.shared.live.lock().await.take());
    }

    pub(super) fn failed(&self, what: &str) -> Error {
        Error::new(ErrorKind::Host, format!("{what} on {}", self.name())).status(Status::Temporary)
    }

    /// Starts a command in a session; the user's shell on the host parses `command`.
    pub(super) async fn begin(&self, command: &str) -> Result<Channel<'_>> {
        let shared = &self.shared;
        let permit =
            shared.channels.acquire().await.map_err(|error| self.failed("open a session").caused_by(&error))?;
        let begun = Instant::now();
        let mut is_second_connection = false;
        let begins = Beginning::new()?;
        let command = begins.before(command);
        loop {
            let live = shared.live().await?;
            let mut wanted = Arc::clone(&live.session).arc_raw_command(&command);
            wanted.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            match wanted.spawn().await {
                Ok(child) => return Ok(Channel { child, begins, live, _permit: permit }),
                // The connection was lost unnoticed; nothing was delivered over it.
                Err(error) if !is_second_connection && is_gone(&live, &error).await => {
                    is_second_connection = true;
                    shared.forget(&live).await;
                }
                Err(error) => {
                    let why = with_sources(&error);
                    if !why.contains("refused") || begun.elapsed() > NO_SESSION_LEFT {
                        return Err(self.failed("open a session").because(why).hint(
                            "its SSH server may allow too few sessions per connection: MaxSessions in sshd_config",
                        ));
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }

    /// Waits for a command to end.
    pub(super) async fn end(&self, channel: Channel<'_>) -> ExecEnd {
        let Channel { child, begins: _, live, _permit } = channel;
        match child.wait().await {
            Ok(status) => status.code().map_or(ExecEnd::Broken, ExecEnd::Exited),
            // The crate takes this exit code for a missing command; the command itself may have returned it.
            Err(openssh::Error::Remote(_)) => ExecEnd::Exited(127),
            Err(error) => {
                if is_gone(&live, &error).await {
                    self.shared.forget(&live).await;
                }
                ExecEnd::Broken
            }
        }
    }
}

/// Whether the connection itself failed.
async fn is_gone(live: &Live, error: &openssh::Error) -> bool {
    matches!(error, openssh::Error::Disconnected) || !live.is_alive() || live.session.check().await.is_err()
}

impl Shared {
    /// The connection, re-established if it was lost.
    pub(super) async fn live(&self) -> Result<Arc<Live>> {
        let mut held = self.live.lock().await;
        if let Some(live) = held.as_ref().filter(|live| live.is_alive()) {
            return Ok(Arc::clone(live));
        }
        *held = None;
        let live = Arc::new(self.route.connect().await?);
        let forwards = self.forwards().clone();
        for (socket, to) in forwards {
            super::forward::open(&live, self.route.block.name(), &socket, (&to.0, to.1)).await?;
        }
        *held = Some(Arc::clone(&live));
        Ok(live)
    }

    /// Drops a lost connection, unless it was replaced since.
    async fn forget(&self, lost: &Arc<Live>) {
        let mut held = self.live.lock().await;
        if held.as_ref().is_some_and(|live| Arc::ptr_eq(live, lost)) {
            *held = None;
        }
    }

    pub(super) fn forwards(&self) -> std::sync::MutexGuard<'_, BTreeMap<PathBuf, (String, u16)>> {
        self.forwards.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[async_trait]
impl Host for SshHost {
    fn name(&self) -> &str {
        self.shared.route.block.name()
    }

    fn home(&self) -> &str {
        &self.shared.route.home
    }

    fn lock(&self) -> String {
        // Shared by all clusters on a machine, so beside the folders of all of them.
        let folder = self.home().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{folder}/lock")
    }

    fn reboot_limit(&self) -> Option<Duration> {
        Some(STARTS_WITHIN)
    }

    async fn rebooted(&self, wait: Duration) -> Result<()> {
        self.after_reboot(wait).await
    }

    async fn exec(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        let uses_sudo = self.as_root && !self.shared.route.is_root();
        let command = if uses_sudo { "sudo -n -- sh -s" } else { "sh -s" };
        let mut channel = self.begin(command).await?;
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (channel.child.stdin().take(), channel.child.stdout().take(), channel.child.stderr().take())
        else {
            return Err(self.failed("run a shell program").because("its pipes are missing"));
        };
        let feed = async move {
            // A program that ends early closes its end; the unread rest does not matter then.
            let _ = stdin.write_all(program.as_bytes()).await;
            drop(stdin);
        };
        // When sudo refuses, its message is the first and only line: hold it back until that is known.
        let mut refusal: Option<String> = None;
        let mut is_first = uses_sudo;
        let mut sift = |stream: Stream, line: &str| {
            if let Some(held) = refusal.take() {
                on_line(Stream::Err, &held);
            }
            if std::mem::take(&mut is_first) && stream == Stream::Err && is_refusal(line) {
                refusal = Some(line.to_owned());
            } else {
                on_line(stream, line);
            }
        };
        let begins = &channel.begins;
        let read = async move { follow(begins.skip(stdout).await, stderr, &mut sift).await };
        tokio::join!(feed, read);
        let end = self.end(channel).await;
        match (refusal, end) {
            (Some(said), ExecEnd::Exited(1 | 126 | 127)) => Err(self.no_root(&said)),
            (Some(held), end) => {
                on_line(Stream::Err, &held);
                Ok(end)
            }
            (None, end) => Ok(end),
        }
    }
}

/// Whether a line is sudo's reason for refusing.
fn is_refusal(line: &str) -> bool {
    const SIGNS: [&str; 6] = [
        "a password is required",
        "a terminal is required",
        "is not in the sudoers file",
        "may not run sudo",
        "is not allowed to",
        "you must have a tty",
    ];
    let is_missing = line.contains("sudo") && line.contains("not found");
    is_missing || (line.contains("sudo") && SIGNS.iter().any(|sign| line.contains(sign)))
}

impl SshHost {
    fn no_root(&self, said: &str) -> Error {
        let user = self.user();
        let error = Error::new(ErrorKind::Host, format!("become root on {}", self.name()))
            .because(said)
            .because(format!("{user} cannot use sudo there without a password"));
        if said.contains("not found") {
            return error.hint("log in as root (`user: root`), or install sudo there");
        }
        error
            .hint(format!(
                "allow it there: echo '{user} ALL=(ALL) NOPASSWD: ALL' | sudo tee /etc/sudoers.d/90-gpucl-{user}"
            ))
            .hint("or log in as root: `user: root`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sudo_refusals_are_distinguished_from_program_output() {
        for line in [
            "sudo: a password is required",
            "sudo: a terminal is required to read the password; either use the -S option",
            "ada is not in the sudoers file.  This incident will be reported to sudo.",
            "Sorry, user ada may not run sudo on gpu1.",
            "bash: line 1: sudo: command not found",
            "sh: 1: sudo: not found",
        ] {
            assert!(is_refusal(line), "{line}");
        }
        for line in ["E: a password is required for the archive", "sudo: unable to resolve host gpu1", "not found"] {
            assert!(!is_refusal(line), "{line}");
        }
    }
}
