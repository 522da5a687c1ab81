//! Hosts of a stand-in cloud: each is a real `sshd` of this user on an address of the loopback, with a home folder of its own.
//!
//! Nothing of it needs root, and nothing lands in the user's own home. A host is held by a small shell program (`guard.sh`): when
//! the host is ended, or whoever made it dies, that ends all processes of the host and removes its folder.

mod files;
mod instance;
mod user_data;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use crate::error::{Doing as _, Error, ErrorKind, Result};

/// What holds a host.
const GUARD: &str = include_str!("guard.sh");
/// Where systems have it; it must be started by its whole path.
const SSHD: [&str; 4] = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd", "/usr/local/bin/sshd"];
/// The last parts of the addresses that hosts may have: 127.0.0.1 is everybody's.
const ADDRESSES: std::ops::RangeInclusive<u8> = 2..=254;
/// How long a server may take to answer once it was started.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// How long a host may take to end: its processes are ended at once, and a busy machine takes its time.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// What hosts are made with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The folder of all hosts; it goes with the last of them.
    pub folder: PathBuf,
    /// The port of every host.
    pub port: u16,
    /// What every login has in its environment besides its own: how packages are reached, where they are kept.
    pub environment: Vec<(String, String)>,
}

/// Something that is to be a host.
#[derive(Clone, Default)]
pub struct NewHost {
    /// Its id: letters, digits, hyphens.
    pub id: String,
    /// What cloud-init would be given; it may hold the host's key.
    pub user_data: Option<String>,
    /// Who may log in besides those that the user data names.
    pub public_keys: Vec<String>,
    /// How long its server stays silent.
    pub silent: Duration,
}

/// The hosts of one stand-in. They end when this is dropped.
#[derive(Debug)]
pub struct LocalHosts {
    config: Config,
    sshd: PathBuf,
    hosts: Mutex<BTreeMap<String, Held>>,
}

/// A host that is there.
#[derive(Debug)]
struct Held {
    address: SocketAddr,
    guard: Child,
}

impl LocalHosts {
    /// Makes none yet; looks whether hosts can be made.
    ///
    /// # Errors
    /// When this machine has no `sshd`.
    pub fn new(config: Config) -> Result<Self> {
        let sshd = SSHD.iter().map(PathBuf::from).find(|path| path.is_file()).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "make hosts on this machine")
                .because("there is no sshd here")
                .hint("sudo apt-get install openssh-server   # only its program is used; its service may be off")
        })?;
        Ok(Self { config, sshd, hosts: Mutex::default() })
    }

    /// Makes a host, and tells where its server answers. One that is there is handed back.
    ///
    /// # Errors
    /// When its files cannot be written, when no address is free, or when its server does not start.
    pub async fn boot(&self, new: &NewHost) -> Result<SocketAddr> {
        let doing = || format!("make the host {}", new.id);
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        if new.id.is_empty() || !new.id.chars().all(is_plain) {
            return Err(Error::new(ErrorKind::Usage, doing()).because("its id is not of letters, digits and hyphens"));
        }
        // Held throughout: two hosts that are made at once do not choose the same address.
        let mut hosts = self.hosts.lock().await;
        if let Some(held) = hosts.get(&new.id) {
            return Ok(held.address);
        }
        let mut taken: Vec<SocketAddr> = hosts.values().map(|held| held.address).collect();
        loop {
            let address = free(self.config.port, &taken).ok_or_else(|| {
                Error::new(ErrorKind::Host, doing())
                    .because(format!("port {} is in use on every address from 127.0.0.2 on", self.config.port))
                    .hint("`gpucl sandbox lambda --ssh-port PORT` takes another; say the same under `provider:`")
            })?;
            match self.start(new, address).await {
                Ok(guard) => {
                    hosts.insert(new.id.clone(), Held { address, guard });
                    return Ok(address);
                }
                // Another program may have taken it meanwhile, such as another sandbox.
                Err(_) if TcpListener::bind(address).is_err() => taken.push(address),
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts what holds a host, and the host's server with it.
    async fn start(&self, new: &NewHost, address: SocketAddr) -> Result<Child> {
        let doing = || format!("make the host {}", new.id);
        let folder = self.config.folder.join(&new.id);
        files::write(&folder, address, new, &self.config.environment).await?;
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "guard"])
            .arg(&folder)
            .arg(&self.sshd)
            .arg(new.silent.as_secs_f32().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for who made the hosts, and ends them in order.
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

    /// Ends a host with all of its processes, and removes its folder; one that is not there is no error.
    ///
    /// # Errors
    /// When something of it is still there.
    pub async fn end(&self, id: &str) -> Result<()> {
        let held = self.hosts.lock().await.remove(id);
        match held {
            Some(held) => held.end(id).await,
            None => Ok(()),
        }
    }

    /// Ends all of them.
    ///
    /// # Errors
    /// When something of one is still there; the others are ended all the same.
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

/// The first address of the loopback on which nobody has this port.
fn free(port: u16, taken: &[SocketAddr]) -> Option<SocketAddr> {
    ADDRESSES
        .map(|last| SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), port)))
        .find(|address| !taken.contains(address) && TcpListener::bind(address).is_ok())
}

/// Waits until a server answers.
async fn answers(address: SocketAddr, folder: &Path, doing: &str) -> Result<()> {
    let begun = Instant::now();
    let said = || fs_err::read_to_string(folder.join("sshd.log")).unwrap_or_default();
    while begun.elapsed() < ANSWERS_WITHIN {
        // Somebody else's server may answer there; ours says that it listens, or why it does not.
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
    let last = said.lines().last().unwrap_or("it said nothing").to_owned();
    Err(Error::new(ErrorKind::Host, doing).because(format!("its sshd does not answer at {address}: {last}")))
}

#[cfg(test)]
mod tests;
