//! The connections of a cluster: its `ssh_config`, its `known_hosts`, and the wait for a host to answer.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::config::{self, Block, HostEntry, Trust};
use super::host::SshHost;
use super::live::{ControlDir, Live};
use super::tool;
use super::trouble::{Cause, Retry, Trouble};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::event::{Bus, EventKind};
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_text_within, write_atomic};

/// From this wait on a caller waits for a machine that is being made, whose name may have no address yet.
const PATIENT: Duration = Duration::from_secs(60);
/// How long a server that hangs up is tried again, also for a caller who does not wait: it has too many callers for a moment.
const BUSY: Duration = Duration::from_secs(20);

/// How long a machine that is being made may refuse the key that it is being given.
const SETTLING: Duration = Duration::from_secs(180);

/// The connections to the hosts of one cluster.
#[derive(Debug)]
pub struct Connections {
    folder: PathBuf,
    home: PathBuf,
    control: Arc<ControlDir>,
    events: Bus,
    blocks: Mutex<Vec<Block>>,
}

impl Connections {
    /// Makes them; nothing is touched. `folder` is the cluster's state folder, `runtime_dir` a short one for sockets, `home` what
    /// a leading `~/` stands for.
    pub fn new(folder: PathBuf, runtime_dir: PathBuf, home: PathBuf, events: Bus) -> Self {
        Self { folder, home, control: Arc::new(ControlDir::new(runtime_dir)), events, blocks: Mutex::default() }
    }

    /// The file for `ssh -F`.
    pub fn config_file(&self) -> PathBuf {
        self.folder.join("ssh_config")
    }

    /// Where sockets of this process may lie.
    pub fn socket_dir(&self) -> &Path {
        self.control.path()
    }

    /// Writes `ssh_config` and `known_hosts` for these hosts; files that are right already are not touched.
    pub fn write(&self, hosts: &[HostEntry]) -> Result<()> {
        let known_hosts = self.known_hosts_file();
        let before = read(&known_hosts)?;
        let mut blocks = Vec::new();
        for HostEntry { names, target } in hosts {
            let entry = HostEntry { names: names.clone(), target: target.clone().at_home(&self.home) };
            // Before anything of it is shown to `ssh`, whatever way it came by.
            if let Some((key, message)) = target.faults().first() {
                let name = names.first().map_or("a host", String::as_str);
                return Err(Error::new(ErrorKind::Host, format!("learn how to reach {name}"))
                    .because(format!("its `{key}` {message}")));
            }
            let resolved = tool::resolve(&entry)?;
            let mut block = Block { entry, resolved, trust: Trust::FirstUse };
            let is_learned = config::lines_of(&before, &block.alias()).next().is_some();
            if target.host_key.is_some() {
                block.trust = Trust::Given;
            } else if !is_learned && tool::is_known_to_user(&block.resolved, block.address(), block.port())? {
                block.trust = Trust::Users;
            }
            blocks.push(block);
        }
        let doing = || format!("write into {}", self.folder.display());
        create_private_dir(&self.folder).doing(ErrorKind::State, doing)?;
        for (file, text) in [
            (known_hosts.clone(), config::known_hosts_text(&before, &blocks)),
            (self.config_file(), config::config_text(&blocks, &known_hosts)?),
            (self.own_file(), config::own_text(&self.config_file())?),
        ] {
            if read(&file)? != text || !file.exists() {
                write_atomic(&file, text.as_bytes(), 0o600).doing(ErrorKind::State, doing)?;
            }
        }
        *self.blocks.lock().unwrap_or_else(PoisonError::into_inner) = blocks;
        Ok(())
    }

    /// Forgets the key that the first connection to a host showed; says whether there was one.
    pub fn forget_host_key(&self, name: &str) -> Result<bool> {
        let block = self.block(name)?;
        let doing = || format!("forget the host key of {name}");
        if block.trust != Trust::FirstUse {
            let error = Error::new(ErrorKind::Usage, doing());
            return Err(match block.trust {
                Trust::Given => error.because("it is a given one").hint("change `host_key:` in that entry of `hosts:`"),
                _ => error
                    .because("it stands in your own known hosts, not in those of the cluster")
                    .hint(format!("ssh-keygen -R {}", block.address())),
            });
        }
        let file = self.known_hosts_file();
        let before = read(&file)?;
        let alias = block.alias();
        let kept: Vec<&str> =
            before.lines().filter(|line| line.split_whitespace().next() != Some(alias.as_str())).collect();
        let was_there = kept.len() < before.lines().count();
        if was_there {
            let text: String = kept.iter().map(|line| format!("{line}\n")).collect();
            write_atomic(&file, text.as_bytes(), 0o600).doing(ErrorKind::State, doing)?;
        }
        Ok(was_there)
    }

    /// Connects to a host by one of its names, and waits until it answers; `home` is the folder of ours on it.
    ///
    /// The connections that are made later, when this one was lost, wait as long.
    ///
    /// # Errors
    /// What cannot pass is told at once: a refused key, a changed host key, a mistake in the configuration. A name without an
    /// address may pass only for who waits for a minute or more.
    pub async fn connect(
        &self,
        name: &str,
        home: String,
        wait: Duration,
        cancel: impl Future<Output = ()>,
    ) -> Result<SshHost> {
        let block = self.block(name)?;
        self.control.create()?;
        let route = Arc::new(Route {
            block,
            home,
            config: self.own_file(),
            people: self.config_file(),
            known_hosts: self.known_hosts_file(),
            control: Arc::clone(&self.control),
            events: self.events.clone(),
            wait,
        });
        let mut cancel = std::pin::pin!(cancel);
        tokio::select! {
            live = route.connect() => Ok(SshHost::new(Arc::clone(&route), live?)),
            () = &mut cancel => {
                Err(Error::new(ErrorKind::Cancelled, format!("connect to {name}")).because("it was stopped"))
            }
        }
    }

    fn known_hosts_file(&self) -> PathBuf {
        self.folder.join("known_hosts")
    }

    fn own_file(&self) -> PathBuf {
        self.folder.join("ssh_config.own")
    }

    fn block(&self, name: &str) -> Result<Block> {
        let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.iter().find(|block| block.entry.names.iter().any(|known| known == name)).cloned().ok_or_else(|| {
            let known: Vec<&str> =
                blocks.iter().flat_map(|block| block.entry.names.iter().map(String::as_str)).collect();
            Error::new(ErrorKind::NotFound, format!("connect to {name}"))
                .because("no host has that name")
                .hint(format!("there are: {}", known.join(", ")))
        })
    }
}

/// A file's text, empty when there is none.
fn read(file: &Path) -> Result<String> {
    match read_text_within(file, RECORD_LIMIT) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read.doing(ErrorKind::State, || format!("read {}", file.display())),
    }
}

/// The way to one host, to be gone again when a connection was lost.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) block: Block,
    pub(super) home: String,
    config: PathBuf,
    people: PathBuf,
    known_hosts: PathBuf,
    control: Arc<ControlDir>,
    events: Bus,
    pub(super) wait: Duration,
}

impl Route {
    /// Where sockets of this process may lie.
    pub(super) fn socket_dir(&self) -> &Path {
        self.control.path()
    }

    /// Tells whoever listens.
    pub(super) fn warn(&self, message: String) {
        self.events.warn(message);
    }

    /// Makes a connection; waits and tries again while that may help.
    pub(super) async fn connect(&self) -> Result<Live> {
        let (name, begun) = (self.block.name(), Instant::now());
        let mut told: Option<Cause> = None;
        let mut attempts = 0_u32;
        loop {
            // Another one of this process may have been the last and taken the folder away.
            self.control.create()?;
            let attempt =
                Live::connect(name.to_owned(), self.config.clone(), self.block.trust, Arc::clone(&self.control));
            let trouble = match attempt.await {
                Ok(live) => {
                    self.tell_first_use(&live);
                    if told.is_some() {
                        self.events.note(format!("{name} answers by SSH"));
                    }
                    return Ok(live);
                }
                Err(trouble) => trouble,
            };
            attempts += 1;
            let (limit, pause) = match trouble.retry(self.wait >= PATIENT) {
                Retry::Never => return Err(self.error(&trouble)),
                Retry::Waits => (self.wait, Duration::from_secs(u64::from(attempts.min(5)))),
                Retry::Settles => (self.wait.min(SETTLING), Duration::from_secs(5)),
                Retry::Soon => (self.wait.max(BUSY), Duration::from_millis(200 << attempts.min(4))),
            };
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(self.error(&trouble));
            }
            if told != Some(trouble.cause) {
                told = Some(trouble.cause);
                self.tell_wait(&trouble, limit);
            }
            tokio::time::sleep(with_jitter(pause).min(left)).await;
        }
    }

    fn tell_wait(&self, trouble: &Trouble, limit: Duration) {
        let what = format!("{} to answer by SSH ({})", self.block.name(), trouble.in_short());
        let limit_milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.events.note(format!("waiting for {what}"));
        self.events.send(EventKind::Waiting { what, limit_milliseconds });
    }

    /// Says once whose key is trusted from now on, and how it is pinned.
    fn tell_first_use(&self, live: &Live) {
        if self.block.trust != Trust::FirstUse || !live.said.contains("Permanently added") {
            return;
        }
        let (name, alias) = (self.block.name(), self.block.alias());
        let fingerprint = tool::fingerprint(&self.known_hosts, &alias).unwrap_or_else(|| "of a new kind".to_owned());
        let text = read(&self.known_hosts).unwrap_or_default();
        let key =
            config::lines_of(&text, &alias).next().and_then(|line| line.split_once(' ')).map(|(_, key)| key.trim());
        self.events.warn(format!(
            "{name} was not known before: its key {fingerprint} is trusted from now on. If that matters, compare it with what \
             `ssh-keygen -lf` shows on its console. To pin it, write into its entry of `hosts:`  host_key: {}",
            key.unwrap_or_default()
        ));
    }

    fn error(&self, trouble: &Trouble) -> Error {
        let error = trouble.error(&self.block);
        match trouble.cause {
            // What a jump host says is not told to us.
            Cause::HungUp | Cause::Other => {
                error.hint(format!("see it by hand: ssh -v -F {} {}", self.people.display(), self.block.name()))
            }
            _ => error,
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.block.user() == "root"
    }
}

/// Between half and one and a half of a pause, so that many who were refused together do not come again together.
fn with_jitter(pause: Duration) -> Duration {
    let mut byte = [128_u8; 1];
    let _ = getrandom::fill(&mut byte);
    pause.mul_f64(0.5 + f64::from(byte[0]) / 255.0)
}
