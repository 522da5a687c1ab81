//! In-memory hosts: they answer each program like a healthy host, after a while.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::cluster::hosts::HostConnector;
use crate::error::{Error, ErrorKind, Result};
use crate::host::{ExecEnd, Host, OnLine, Stream};
use crate::name::Key;
use crate::provider::HostPlace;

/// How long each stage takes.
pub(super) const PREPARE: Duration = Duration::from_secs(300);
pub(super) const FIREWALL: Duration = Duration::from_secs(1);
pub(super) const DEPLOY: Duration = Duration::from_secs(2);

/// One stage that ran on one host: its program, its times, and the number of its connection.
#[derive(Debug, Clone)]
pub(super) struct Ran {
    pub(super) host: Key,
    pub(super) stage: String,
    pub(super) from: Duration,
    pub(super) to: Duration,
    pub(super) connection: usize,
    pub(super) program: String,
}

#[derive(Debug)]
struct State {
    begun: Instant,
    ran: Vec<Ran>,
    connections: usize,
    fails: Option<(Key, &'static str)>,
    gpus: BTreeMap<Key, usize>,
    /// The calls for a host key of a host's own, and how many of them fail from now on.
    own_keys: (usize, usize),
}

/// All hosts and their connector.
#[derive(Debug, Clone)]
pub(super) struct Hosts {
    state: Arc<Mutex<State>>,
    open: Arc<Mutex<BTreeMap<Key, Arc<MemoryHost>>>>,
}

/// One connection to a host.
#[derive(Debug)]
pub(super) struct MemoryHost {
    key: Key,
    name: String,
    home: String,
    connection: usize,
    state: Arc<Mutex<State>>,
}

impl Hosts {
    pub(super) fn new() -> Self {
        let state = State {
            begun: Instant::now(),
            ran: Vec::new(),
            connections: 0,
            fails: None,
            gpus: BTreeMap::new(),
            own_keys: (0, 0),
        };
        Self { state: Arc::new(Mutex::new(state)), open: Arc::default() }
    }

    /// The runs of a stage, on all hosts.
    pub(super) fn ran(&self, stage: &str) -> Vec<Ran> {
        self.state.lock().unwrap().ran.iter().filter(|ran| ran.stage == stage).cloned().collect()
    }

    /// Gives a host this many GPUs.
    pub(super) fn has_gpus(&self, host: Key, count: usize) {
        self.state.lock().unwrap().gpus.insert(host, count);
    }

    /// How often a host was to make a host key of its own.
    pub(super) fn own_keys(&self) -> usize {
        self.state.lock().unwrap().own_keys.0
    }

    /// Makes the next calls for a host key fail.
    pub(super) fn fails_own_keys(&self, times: usize) {
        self.state.lock().unwrap().own_keys.1 = times;
    }

    /// Makes a stage fail on a host.
    pub(super) fn fails(&self, host: Key, stage: &'static str) {
        self.state.lock().unwrap().fails = Some((host, stage));
    }
}

/// The value of a variable that a program assigns at its beginning.
fn assigned(program: &str, name: &str) -> String {
    let begin = format!("{name}=");
    let line = program.lines().find_map(|line| line.strip_prefix(&begin)).unwrap_or_default();
    line.trim_matches('\'').to_owned()
}

#[async_trait]
impl Host for MemoryHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn home(&self) -> &str {
        &self.home
    }

    async fn exec(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        let (nonce, stage) = (assigned(program, "nonce"), assigned(program, "stage"));
        let time = match stage.as_str() {
            "prepare" => PREPARE,
            "firewall" => FIREWALL,
            "deploy" => DEPLOY,
            _ => Duration::ZERO,
        };
        let from = Instant::now();
        tokio::time::sleep(time).await;
        let fails = {
            let mut state = self.state.lock().unwrap();
            let (from, to) = (from.duration_since(state.begun), state.begun.elapsed());
            let (host, connection) = (self.key.clone(), self.connection);
            let program = program.to_owned();
            state.ran.push(Ran { host, stage: stage.clone(), from, to, connection, program });
            state.fails.as_ref().is_some_and(|(host, at)| *host == self.key && *at == stage)
        };
        let mut say = |text: &str| on_line(Stream::Out, &format!("::gpucl {nonce} {text}"));
        for fact in ["os ubuntu", "os_version 24.04", "arch x86_64", "cpus 8", "memory 67108864", "boot_id b-1"] {
            say(&format!("fact {fact}"));
        }
        let gpus = self.state.lock().unwrap().gpus.get(&self.key).copied().unwrap_or_default();
        for number in 1..=gpus {
            let (pci, uuid) = (format!("0000:{number:02x}:00.0"), format!("GPU-{number}"));
            say(&format!("fact gpu {pci} 0x10de 0x20b0 nvidia - -"));
            say(&format!("fact nvidia 00000000:{number:02x}:00.0, {uuid}, NVIDIA A100, 40960, 580.95.05, Disabled"));
        }
        if fails {
            say("trouble the disk is full");
        } else if stage != "-" {
            say("unchanged");
        }
        say("bye");
        Ok(ExecEnd::Exited(0))
    }
}

#[async_trait]
impl HostConnector for Hosts {
    async fn record_place(&self, _key: &Key, _place: &HostPlace) {}

    async fn forget(&self, key: &Key) {
        self.open.lock().unwrap().remove(key);
    }

    async fn host(&self, key: &Key, place: &HostPlace, home: &str, wait: Duration) -> Result<Arc<dyn Host>> {
        let open = self.open.lock().unwrap().get(key).cloned();
        match open {
            Some(host) => Ok(host),
            None => self.fresh(key, place, home, wait).await,
        }
    }

    async fn give_own_key(&self, key: &Key) -> Result<()> {
        let calls = &mut self.state.lock().unwrap().own_keys;
        calls.0 += 1;
        match calls.1.checked_sub(1) {
            None => Ok(()),
            Some(left) => {
                calls.1 = left;
                let doing = format!("replace the host key of {}", key.display_name());
                Err(Error::new(ErrorKind::Host, doing).because("it is restarting"))
            }
        }
    }

    async fn fresh(&self, key: &Key, _place: &HostPlace, home: &str, _wait: Duration) -> Result<Arc<dyn Host>> {
        let connection = {
            let mut state = self.state.lock().unwrap();
            state.connections += 1;
            state.connections
        };
        if self.state.lock().unwrap().fails == Some((key.clone(), "connect")) {
            tokio::time::sleep(Duration::from_secs(600)).await;
            return Err(Error::new(ErrorKind::Host, format!("connect to {}", key.display_name())).because("no answer"));
        }
        let (name, home) = (key.display_name(), home.to_owned());
        let state = Arc::clone(&self.state);
        let host = Arc::new(MemoryHost { key: key.clone(), name, home, connection, state });
        self.open.lock().unwrap().insert(key.clone(), Arc::clone(&host));
        Ok(host)
    }
}
