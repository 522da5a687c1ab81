//! Hosts of a stand-in cloud: each is a real `sshd`, run by this user on a loopback address, with a home folder of its
//! own.
//!
//! Nothing needs root, and nothing is written to the user's own home. A small shell program (`guard.sh`) guards each
//! host: when the host is ended, or this process dies, it ends all processes of the host and removes its folder.

mod files;
mod instance;
mod user_data;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Child;
use tokio::sync::Mutex;

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::child;

/// The program that guards a host.
const GUARD: &str = include_str!("guard.sh");
/// Where sshd is installed; it must be started by its absolute path.
const SSHD: [&str; 4] = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd", "/usr/local/bin/sshd"];
/// Last bytes of the addresses that hosts may have: 127.0.0.1 is used by everyone.
const ADDRESSES: std::ops::RangeInclusive<u8> = 2..=254;
/// Timeout for a started sshd to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// Timeout for a host to end: its processes are killed at once, but a busy machine is slow.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// Configuration of the hosts of one stand-in.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder of all hosts; removed with the last of them.
    pub folder: PathBuf,
    /// The SSH port of every host.
    pub port: u16,
    /// Environment variables of every login, besides `HOME` and `STAND_IN_HOST`: package indexes and caches.
    pub environment: Vec<(String, String)>,
}

/// A host to create.
#[derive(Clone, Default)]
pub struct NewHost {
    /// Host id: letters, digits, hyphens.
    pub id: String,
    /// User data for cloud-init; it may hold the host's private key.
    pub user_data: Option<String>,
    /// Public keys that may log in, besides those in the user data.
    pub public_keys: Vec<String>,
    /// Delay before sshd starts.
    pub silent: Duration,
}

/// The hosts of one stand-in, ended when this is dropped.
#[derive(Debug)]
pub struct LocalHosts {
    config: Config,
    sshd: PathBuf,
    hosts: Mutex<BTreeMap<String, Held>>,
}

/// A running host, with the process that guards it.
#[derive(Debug)]
struct Held {
    address: SocketAddr,
    guard: Child,
}

impl LocalHosts {
    /// Checks whether hosts can be created; creates none yet.
    ///
    /// # Errors
    /// When this machine has no `sshd`.
    pub fn new(config: Config) -> Result<Self> {
        let sshd = SSHD.iter().map(PathBuf::from).find(|path| path.is_file()).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "create hosts on this machine")
                .because("sshd is not installed")
                .hint("sudo apt-get install openssh-server   # only the program is used; the service may be disabled")
        })?;
        Ok(Self { config, sshd, hosts: Mutex::default() })
    }

    /// Creates a host, and returns the address of its sshd. Idempotent: a host that exists already is returned.
    ///
    /// # Errors
    /// When its files cannot be written, when no address is free, or when its server does not start.
    pub async fn boot(&self, new: &NewHost) -> Result<SocketAddr> {
        let doing = || format!("create the host {}", new.id);
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        if new.id.is_empty() || !new.id.chars().all(is_plain) {
            return Err(
                Error::new(ErrorKind::Usage, doing()).because("its id must consist of letters, digits and hyphens")
            );
        }
        // Locked throughout, so that two hosts created at once do not choose the same address.
        let mut hosts = self.hosts.lock().await;
        if let Some(held) = hosts.get(&new.id) {
            return Ok(held.address);
        }
        let mut taken: Vec<SocketAddr> = hosts.values().map(|held| held.address).collect();
        loop {
            let address = free(self.config.port, &taken).ok_or_else(|| {
                Error::new(ErrorKind::Host, doing())
                    .because(format!("port {} is in use on every address from 127.0.0.2 on", self.config.port))
                    .hint("choose another with `gpucl sandbox lambda --ssh-port PORT`, and set the same under `provider:`")
            })?;
            match self.start(new, address).await {
                Ok(guard) => {
                    hosts.insert(new.id.clone(), Held { address, guard });
                    return Ok(address);
                }
                // Another program, such as another sandbox, may have taken it in the meantime.
                Err(_) if TcpListener::bind(address).is_err() => taken.push(address),
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts a host's guard, which starts its sshd.
    async fn start(&self, new: &NewHost, address: SocketAddr) -> Result<Child> {
        let doing = || format!("create the host {}", new.id);
        let folder = self.config.folder.join(&new.id);
        files::write(&folder, address, new, &self.config.environment).await?;
        let mut guard = child::async_command("sh")
            .args(["-c", GUARD, "guard"])
            .arg(&folder)
            .arg(&self.sshd)
            .arg(new.silent.as_secs_f32().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C must reach only this process, which ends the hosts in order.
            .process_group(0)
            .spawn()
            .doing(ErrorKind::Host, doing)?;
        if new.silent.is_zero()
            && let Err(error) = answers(address, &folder, &doing()).await
        {
            drop(guard.stdin.take());
            let _ = tokio::time::timeout(ENDS_WITHIN, guard.wait()).await;
            return Err(error);
        }
        Ok(guard)
    }

    /// Ends a host with all of its processes, and removes its folder. Idempotent: an unknown host is not an error.
    ///
    /// # Errors
    /// When processes or files of it are left.
    pub async fn end(&self, id: &str) -> Result<()> {
        let held = self.hosts.lock().await.remove(id);
        match held {
            Some(held) => held.end(id).await,
            None => Ok(()),
        }
    }

    /// Ends all hosts.
    ///
    /// # Errors
    /// When processes or files of a host are left; the others are ended all the same.
    pub async fn end_all(&self) -> Result<()> {
        let hosts = std::mem::take(&mut *self.hosts.lock().await);
        let ends = hosts.into_iter().map(|(id, held)| async move { held.end(&id).await });
        futures_util::future::join_all(ends).await.into_iter().collect()
    }
}

impl Held {
    async fn end(mut self, id: &str) -> Result<()> {
        drop(self.guard.stdin.take());
        let failed = |why: String| Err(Error::new(ErrorKind::LeftBehind, format!("end the host {id}")).because(why));
        match tokio::time::timeout(ENDS_WITHIN, self.guard.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(_)) => failed("some of its processes or files are still there".to_owned()),
            Ok(Err(error)) => failed(error.to_string()),
            Err(_) => failed(format!("its processes did not end within {} s", ENDS_WITHIN.as_secs())),
        }
    }
}

/// The first loopback address on which this port is free.
fn free(port: u16, taken: &[SocketAddr]) -> Option<SocketAddr> {
    ADDRESSES
        .map(|last| SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), port)))
        .find(|address| !taken.contains(address) && TcpListener::bind(address).is_ok())
}

/// Waits until the host's sshd answers.
async fn answers(address: SocketAddr, folder: &Path, doing: &str) -> Result<()> {
    let begun = Instant::now();
    let said = || fs_err::read_to_string(folder.join("sshd.log")).unwrap_or_default();
    while begun.elapsed() < ANSWERS_WITHIN {
        // A foreign server may answer there; ours logs that it listens, or why it does not.
        let (listens, fails) = (said().contains("Server listening"), said().contains("Cannot bind"));
        if listens && tokio::net::TcpStream::connect(address).await.is_ok() {
            return Ok(());
        }
        if fails {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let said = said();
    let last = said.lines().last().unwrap_or("it logged nothing").to_owned();
    Err(Error::new(ErrorKind::Host, doing).because(format!("its sshd does not answer at {address}: {last}")))
}

#[cfg(test)]
mod tests;
