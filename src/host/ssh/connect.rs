//! Connecting to the hosts of one cluster.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use openssh::{ControlPersist, KnownHosts, Session, SessionBuilder};

use super::config::{HostEntry, config_text, pinned_keys, resolved};
use super::trouble::{self, Why};
use super::{SshHost, SshTarget};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::event::{Bus, EventKind};
use crate::util::fs::{create_private_dir, write_atomic};
use crate::util::random;

/// How long a master may go on without anybody who uses it: it ends by itself when gpucl was killed.
const IDLE: usize = 300;
/// How long one attempt may take, also where a hop on the way never answers.
const ONE_ATTEMPT: Duration = Duration::from_secs(40);

/// The ways to the hosts of one cluster.
#[derive(Debug, Clone)]
pub struct Connections {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    runtime_dir: PathBuf,
    events: Bus,
}

impl Connections {
    /// Makes it of the folder of the cluster's state, and a short folder for sockets.
    pub fn new(folder: PathBuf, runtime_dir: PathBuf, events: Bus) -> Self {
        Self { shared: Arc::new(Shared { folder, runtime_dir, events }) }
    }

    /// The cluster's `ssh_config`.
    pub fn config_path(&self) -> PathBuf {
        self.shared.folder.join("ssh_config")
    }

    fn known_hosts(&self) -> PathBuf {
        self.shared.folder.join("known_hosts")
    }

    /// Writes the cluster's `ssh_config` and `known_hosts`. Keys that were met since stay.
    pub fn write(&self, entries: &[HostEntry]) -> Result<()> {
        let doing = || "write the way to the cluster's hosts".to_owned();
        create_private_dir(&self.shared.folder).doing(ErrorKind::State, doing)?;
        let text = config_text(entries, &self.shared.folder, resolved);
        write_if_new(&self.config_path(), &text).doing(ErrorKind::State, doing)?;
        let pinned = pinned_keys(entries);
        let met = fs_err::read_to_string(self.known_hosts()).unwrap_or_default();
        let stays = |line: &&str| !pinned.iter().any(|pin| pin.split(' ').next() == line.split(' ').next());
        let mut lines: Vec<&str> = met.lines().filter(stays).collect();
        lines.extend(pinned.iter().map(String::as_str));
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        write_if_new(&self.known_hosts(), &text).doing(ErrorKind::State, doing)
    }

    /// Connects to the host of this name.
    ///
    /// `home` is the folder on it that holds everything of ours. While it does not answer it is tried again, for up to
    /// `wait`; what a second attempt cannot change is told at once.
    pub async fn connect(
        &self,
        name: &str,
        home: String,
        target: SshTarget,
        wait: Duration,
        cancel: impl Future<Output = ()> + Send,
    ) -> Result<SshHost> {
        let session = tokio::select! {
            session = self.session(name, &target, wait) => session?,
            () = cancel => {
                return Err(Error::new(ErrorKind::Cancelled, format!("connect to {name}")).because("it was stopped"));
            }
        };
        Ok(SshHost::new(self.clone(), name.to_owned(), home, target, session))
    }

    /// A new connection, with patience.
    pub(super) async fn session(&self, name: &str, target: &SshTarget, wait: Duration) -> Result<Session> {
        let begin = Instant::now();
        let mut said: Option<Why> = None;
        let mut pause = Duration::from_millis(250);
        loop {
            let error = match self.attempt(name, target).await {
                Ok(session) => return Ok(session),
                Err(error) => error,
            };
            let text = match &error {
                openssh::Error::Connect(error) | openssh::Error::Master(error) => error.to_string(),
                other => other.to_string(),
            };
            let why = Why::of(&text);
            if !why.may_pass() || begin.elapsed() + pause > wait {
                let config = self.config_path().display().to_string();
                let error = trouble::error(name, &target.node, &config, &text);
                let patience = crate::util::human::duration(wait);
                return Err(if why.may_pass() && said.is_some() {
                    error.because(format!("it was tried again for {patience}"))
                } else {
                    error
                });
            }
            if said != Some(why) {
                self.shared.events.send(EventKind::Waiting {
                    what: format!("{name} to let us in: {}", why.words()),
                    limit_milliseconds: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                });
                said = Some(why);
            }
            // Many that were turned away at once must not come back at once.
            tokio::time::sleep(pause + random::up_to(pause)).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }

    async fn attempt(&self, name: &str, target: &SshTarget) -> Result<Session, openssh::Error> {
        let sockets = self.shared.runtime_dir.join("ssh");
        create_private_dir(&sockets).map_err(openssh::Error::Master)?;
        let before = count_lines(&self.known_hosts());
        let mut builder = SessionBuilder::default();
        builder
            .config_file(self.config_path())
            .control_directory(&sockets)
            .known_hosts_check(if target.host_key.is_some() { KnownHosts::Strict } else { KnownHosts::Add });
        if let Some(idle) = NonZeroUsize::new(IDLE) {
            builder.control_persist(ControlPersist::IdleFor(idle));
        }
        let session = tokio::time::timeout(ONE_ATTEMPT, builder.connect_mux(name)).await.unwrap_or_else(|_| {
            let kind = std::io::ErrorKind::TimedOut;
            Err(openssh::Error::Connect(std::io::Error::new(kind, "Connection timed out before it was whole")))
        })?;
        let met = fs_err::read_to_string(self.known_hosts()).unwrap_or_default();
        for line in met.lines().skip(before).filter_map(|line| line.split_once(' ')) {
            self.shared.events.warn(format!(
                "{name}: its host key is taken on trust, since none was known; to pin it, write in the spec: host_key: \"{}\"",
                line.1
            ));
        }
        Ok(session)
    }
}

fn count_lines(path: &Path) -> usize {
    fs_err::read_to_string(path).unwrap_or_default().lines().count()
}

fn write_if_new(path: &Path, text: &str) -> std::io::Result<()> {
    if fs_err::read_to_string(path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    write_atomic(path, text.as_bytes(), 0o600)
}
