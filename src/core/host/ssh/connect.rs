//! The SSH connections of a cluster: its `ssh_config`, its `known_hosts`, and the wait for a host to answer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::config::{self, ANOTHER_MACHINE, Block, Files, HostEntry, Trust};
use super::host::SshHost;
use super::host_keys::HostKeys;
use super::live::ControlDir;
use super::route::{Route, read};
use super::tool;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::event::Bus;
use crate::ray::shell_line;
use crate::util::child;
use crate::util::fs::{create_private_dir, write_atomic};
use crate::util::runtime_dir::is_runtime_dir;

/// How many hosts are resolved at once.
const AT_ONCE: usize = 8;

/// The connections to the hosts of one cluster.
#[derive(Debug)]
pub struct Connections {
    folder: PathBuf,
    home: PathBuf,
    control: Arc<ControlDir>,
    events: Bus,
    blocks: Mutex<Vec<Block>>,
    /// Held while `known_hosts`, and what it is made from, is written.
    files: Mutex<()>,
    /// The provider makes the hosts, and their keys with them.
    are_made: bool,
}

impl Connections {
    /// Creates the value without touching any file. `folder` is the cluster's state folder, `runtime_dir` one with a
    /// short path for sockets, `home` replaces a leading `~/`.
    pub fn new(folder: PathBuf, runtime_dir: PathBuf, home: PathBuf, events: Bus) -> Self {
        let control = Arc::new(ControlDir::new(runtime_dir));
        Self { folder, home, control, events, blocks: Mutex::default(), files: Mutex::default(), are_made: false }
    }

    /// The same, to hosts that their provider makes with their keys: no spec has these keys, and nobody can accept another.
    #[must_use]
    pub fn to_made_hosts(self) -> Self {
        Self { are_made: true, ..self }
    }

    /// The file for `ssh -F`.
    pub fn config_file(&self) -> PathBuf {
        self.folder.join("ssh_config")
    }

    /// The folder for this process's sockets.
    pub fn socket_dir(&self) -> &Path {
        self.control.path()
    }

    /// The user's own `ssh` to a host, for a shell or for the command that these words are.
    ///
    /// # Errors
    /// If the folder for sockets is not private to this user: a shared login has its socket there.
    pub fn program(&self, name: &str, words: &[String]) -> Result<Command> {
        is_runtime_dir(self.control.runtime())?;
        let mut ssh = child::command("ssh");
        ssh.arg("-F").arg(self.config_file()).arg(name);
        if !words.is_empty() {
            ssh.arg("--").arg(shell_line(words));
        }
        Ok(ssh)
    }

    /// Writes `ssh_config` and `known_hosts` for these hosts; files that are up to date are not touched.
    pub fn write(&self, hosts: &[HostEntry]) -> Result<()> {
        let known_hosts = self.known_hosts_file();
        let before = read(&known_hosts)?;
        let entries: Vec<HostEntry> = hosts
            .iter()
            .map(|HostEntry { names, target }| HostEntry {
                names: names.clone(),
                target: target.clone().at_home(&self.home),
            })
            .collect();
        // Checked before `ssh` sees any of it, wherever it came from.
        for entry in &entries {
            if let Some((key, message)) = entry.target.faults().first() {
                let name = entry.names.first().map_or("a host", String::as_str);
                return Err(Error::new(ErrorKind::Host, format!("resolve the SSH settings of {name}"))
                    .because(format!("its `{key}` {message}")));
            }
        }
        let blocks = self.blocks_of(entries, &before)?;
        let config = self.config_file();
        let files = Files { config: &config, known_hosts: &known_hosts, runtime: self.control.runtime() };
        let doing = || format!("write into {}", self.folder.display());
        create_private_dir(&self.folder).doing(ErrorKind::State, doing)?;
        for (file, text) in [
            (self.config_file(), config::config_text(&blocks, files)?),
            (self.own_file(), config::own_text(&self.config_file())?),
        ] {
            self.write_file(&file, &text)?;
        }
        let _turn = self.files_turn();
        *self.blocks.lock().unwrap_or_else(PoisonError::into_inner) = blocks;
        self.write_known_hosts()
    }

    /// Writes `known_hosts` as it follows from the hosts and their keys; the turn must be held.
    pub(super) fn write_known_hosts(&self) -> Result<()> {
        let file = self.known_hosts_file();
        let (before, keys) = (read(&file)?, HostKeys::read(&self.folder)?);
        let text = config::known_hosts_text(&before, &self.blocks(), &keys);
        self.write_file(&file, &text)
    }

    /// Writes a file unless it is up to date.
    fn write_file(&self, file: &Path, text: &str) -> Result<()> {
        if read(file)? != text || !file.exists() {
            let doing = || format!("write into {}", self.folder.display());
            write_atomic(file, text.as_bytes(), 0o600).doing(ErrorKind::State, doing)?;
        }
        Ok(())
    }

    /// The turn to write `known_hosts`, and what it is made from.
    pub(super) fn files_turn(&self) -> MutexGuard<'_, ()> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cluster's state folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn blocks(&self) -> Vec<Block> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The blocks of these hosts: those known before, and the others resolved side by side, three processes for each.
    fn blocks_of(&self, entries: Vec<HostEntry>, known_hosts: &str) -> Result<Vec<Block>> {
        let known = self.blocks();
        let resolve = |entry: HostEntry| -> Result<Block> {
            if let Some(block) = known.iter().find(|block| block.entry == entry) {
                return Ok(block.clone());
            }
            let resolved = tool::resolve(&entry)?;
            let users_master = if entry.is_login() { tool::users_master(&entry.target, &resolved)? } else { None };
            let mut block = Block { entry, resolved, trust: Trust::FirstUse, users_master };
            let is_recorded = config::lines_of(known_hosts, &block.alias()).next().is_some();
            if block.entry.target.host_key.is_some() {
                // The machine that relays run on is the user's.
                let is_made = self.are_made && !block.entry.is_login();
                block.trust = if is_made { Trust::Made } else { Trust::Given };
            } else if !is_recorded && tool::is_known_to_user(&block.resolved, block.address(), block.port())? {
                block.trust = Trust::Users;
            }
            Ok(block)
        };
        let share = entries.len().div_ceil(AT_ONCE).max(1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = entries
                .chunks(share)
                .map(|part| scope.spawn(|| part.iter().cloned().map(resolve).collect::<Result<Vec<_>>>()))
                .collect();
            let mut blocks = Vec::new();
            for thread in threads {
                let resolved = thread.join().map_err(|_| Error::new(ErrorKind::Internal, "resolve SSH settings"))?;
                blocks.extend(resolved?);
            }
            Ok(blocks)
        })
    }

    /// The key of a host that was recorded at the first connection to it, as in a `.pub` file.
    pub fn recorded_key(&self, name: &str) -> Option<String> {
        let block = self.block(name).ok().filter(|block| block.trust == Trust::FirstUse)?;
        let text = read(&self.known_hosts_file()).ok()?;
        let line = config::lines_of(&text, &block.alias()).next()?.to_owned();
        Some(line.split_whitespace().skip(1).take(2).collect::<Vec<_>>().join(" "))
    }

    /// Removes the key recorded at the first connection to a host; returns whether there was one.
    pub fn forget_host_key(&self, name: &str) -> Result<bool> {
        let block = self.block(name)?;
        let doing = || format!("forget the host key of {name}");
        if block.trust != Trust::FirstUse {
            let error = Error::new(ErrorKind::Usage, doing());
            return Err(match block.trust {
                Trust::Given => {
                    error.because("it was given, not recorded at the first connection").hint(block.where_key_is_given())
                }
                Trust::Made => error.because("the machine was made with it").hint(ANOTHER_MACHINE),
                _ => error
                    .because("it is in your own known_hosts file, not in the cluster's")
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

    /// Connects to a host by one of its names and waits until it answers; `home` is gpucl's folder on it.
    ///
    /// Reconnects after a lost connection wait as long.
    ///
    /// # Errors
    /// Fails at once when waiting cannot help: a refused key, a changed host key, a mistake in the configuration. A
    /// name that does not resolve, or a refused key, is retried only when `wait` is a minute or more.
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
                Err(Error::new(ErrorKind::Cancelled, format!("connect to {name}")).because("it was interrupted"))
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

#[cfg(test)]
mod tests {
    use super::super::SshTarget;
    use super::*;

    /// A claim or a state written by hand, or by an earlier version, has not passed the checks of a spec.
    #[test]
    fn what_came_past_the_checks_of_a_spec_is_not_shown_to_ssh() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let (events, _inbox) = Bus::new();
        let connections = Connections::new(state.clone(), folder.path().join("run"), folder.path().to_owned(), events);
        let target = || SshTarget { node: "gpu1".to_owned(), ..SshTarget::default() };
        let attack = || "x\nProxyCommand=touch${IFS}/tmp/marker".to_owned();
        for (key, target) in [
            ("user", SshTarget { user: Some(attack()), ..target() }),
            ("node", SshTarget { node: "-oProxyCommand=sh".to_owned(), ..target() }),
            ("identity_file", SshTarget { identity_file: Some(attack().into()), ..target() }),
            ("jump", SshTarget { jump: Some(attack()), ..target() }),
            ("host_key", SshTarget { host_key: Some("ssh-rsa AAAA\n* ssh-rsa AAAA".to_owned()), ..target() }),
        ] {
            let error = connections.write(&[HostEntry { names: vec!["host-0".to_owned()], target }]).unwrap_err();
            assert!(error.causes()[0].starts_with(&format!("its `{key}` ")), "{error}");
            assert!(!state.exists(), "something was written");
        }
    }
}
