//! What a stand-in holds.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::clock::{Clock, after};
use super::super::faults::Faults;
use super::super::ids::Ids;
use super::super::shared;
use super::config::{Account, Bug, Config, Outcome, RegionConfig, TypeConfig, User};
use super::contract::Ledger;
use super::pace::Limiter;

/// What all requests share.
pub(super) type Shared = shared::Shared<State>;

/// Everything.
#[derive(Debug)]
pub(super) struct State {
    pub(super) config: Config,
    pub(super) clock: Clock,
    pub(super) ids: Ids,
    pub(super) faults: Faults,
    pub(super) limiter: Limiter,
    pub(super) ledger: Ledger,
    /// Whose each key of the API is.
    pub(super) api_keys: BTreeMap<String, User>,
    pub(super) instances: Vec<Instance>,
    pub(super) keys: Vec<SshKey>,
    pub(super) file_systems: Vec<FileSystem>,
    pub(super) rulesets: Vec<Ruleset>,
    /// The rules of the whole account.
    pub(super) global_rules: Vec<Value>,
    /// What is free, by type and region.
    pub(super) free: BTreeMap<(String, String), Free>,
    /// What will be free.
    pub(super) coming: Vec<(Timestamp, (String, String), u32)>,
    /// What becomes of the next instances.
    pub(super) outcomes: VecDeque<Outcome>,
    /// It ends, and makes no more hosts.
    pub(super) is_closing: bool,
    addresses: u32,
}

/// What is free of a type in a region.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Free {
    pub(super) count: u32,
    /// It is listed and cannot be had.
    pub(super) is_phantom: bool,
}

/// Where an instance is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Booting { until: Timestamp },
    Active,
    Unhealthy,
    Preempted { since: Timestamp },
    Terminating { since: Timestamp },
    Terminated { since: Timestamp },
}

/// Where its host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Host {
    /// Nobody makes one: the address is made up.
    MadeUp,
    /// It is to come from somebody, who may have begun.
    Awaited { begun: bool },
    /// It is there.
    At(SocketAddr),
}

/// A virtual machine.
#[derive(Debug, Clone)]
pub(super) struct Instance {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) region: String,
    pub(super) key_names: Vec<String>,
    /// What the keys were when it was launched.
    pub(super) public_keys: Vec<String>,
    /// Ids of file systems and where they are mounted.
    pub(super) mounts: Vec<(String, String)>,
    pub(super) hostname: Option<String>,
    pub(super) image: String,
    pub(super) user_data: Option<String>,
    pub(super) tags: Vec<(String, String)>,
    pub(super) rulesets: Vec<String>,
    pub(super) launched: Timestamp,
    pub(super) shown: Timestamp,
    pub(super) ended: Option<Timestamp>,
    pub(super) phase: Phase,
    pub(super) outcome: Outcome,
    /// Its public address when nobody makes a host.
    pub(super) made_up: String,
    pub(super) private_ip: String,
    pub(super) host: Host,
    /// Whether its sshd was told to answer.
    pub(super) answers: bool,
    pub(super) jupyter_token: String,
    /// How many requests to terminate it are still refused.
    pub(super) refusals: u32,
    /// It has a status that the document does not have.
    pub(super) is_strange: bool,
    /// A test put it there.
    pub(super) is_foreign: bool,
}

impl Instance {
    /// Whether it is paid for.
    pub(super) fn is_billed(&self) -> bool {
        !matches!(self.phase, Phase::Terminated { .. } | Phase::Preempted { .. })
    }

    /// Whether it uses what it was launched with.
    pub(super) fn holds(&self) -> bool {
        !matches!(self.phase, Phase::Terminated { .. })
    }

    /// Its status' name.
    pub(super) fn status(&self) -> &'static str {
        if self.is_strange && self.phase == Phase::Active {
            return "alert";
        }
        match self.phase {
            Phase::Booting { .. } => "booting",
            Phase::Active => "active",
            Phase::Unhealthy => "unhealthy",
            Phase::Preempted { .. } => "preempted",
            Phase::Terminating { .. } => "terminating",
            Phase::Terminated { .. } => "terminated",
        }
    }
}

/// An SSH key.
#[derive(Debug, Clone)]
pub(super) struct SshKey {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) public_key: String,
    pub(super) shown: Timestamp,
}

/// A file system.
#[derive(Debug, Clone)]
pub(super) struct FileSystem {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) region: String,
    pub(super) created: Timestamp,
    pub(super) shown: Timestamp,
    pub(super) by: User,
}

/// A firewall ruleset.
#[derive(Debug, Clone)]
pub(super) struct Ruleset {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) region: String,
    pub(super) rules: Vec<Value>,
    pub(super) created: Timestamp,
    pub(super) shown: Timestamp,
}

impl State {
    pub(super) fn new(config: Config) -> Self {
        let clock = match &config.time {
            Some(source) => Clock::counted(config.clock_offset, source.clone()),
            None => Clock::new(config.clock_offset),
        };
        let mut ids = Ids::new();
        let api_keys = User::ALL.map(|user| (api_key(user, &mut ids), user)).into_iter().collect();
        let free = |(at, count): (&(String, String), &u32)| (at.clone(), Free { count: *count, is_phantom: false });
        Self {
            free: config.capacity.iter().map(free).collect(),
            clock,
            ids,
            api_keys,
            config,
            faults: Faults::default(),
            limiter: Limiter::default(),
            ledger: Ledger::default(),
            instances: Vec::new(),
            keys: Vec::new(),
            file_systems: Vec::new(),
            rulesets: Vec::new(),
            global_rules: vec![
                json!({"protocol": "tcp", "port_range": [22, 22], "source_network": "0.0.0.0/0", "description": "SSH"}),
                json!({"protocol": "icmp", "source_network": "0.0.0.0/0", "description": "ICMP"}),
            ],
            coming: Vec::new(),
            outcomes: VecDeque::new(),
            is_closing: false,
            addresses: 0,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn has_bug(&self, bug: Bug) -> bool {
        self.config.bugs.contains(&bug)
    }

    /// From when lists show what is made now.
    pub(super) fn shown(&self) -> Timestamp {
        if self.has_bug(Bug::LateForever) { Timestamp::MAX } else { after(self.now(), self.config.late) }
    }

    /// How many of what is made are made in truth.
    pub(super) fn times(&self) -> usize {
        match (self.has_bug(Bug::LosesCreated), self.has_bug(Bug::DuplicatesOnCreate)) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 1,
        }
    }

    pub(super) fn kind(&self, name: &str) -> Option<&TypeConfig> {
        self.config.types.iter().find(|kind| kind.name == name)
    }

    pub(super) fn region(&self, name: &str) -> Option<&RegionConfig> {
        self.config.regions.iter().find(|region| region.name == name)
    }

    pub(super) fn instance(&mut self, id: &str) -> Option<&mut Instance> {
        self.instances.iter_mut().find(|instance| instance.id == id)
    }

    /// How long an instance of this type boots.
    pub(super) fn boot_of(&self, kind: &str) -> Duration {
        self.kind(kind).and_then(|kind| kind.boot).unwrap_or(self.config.boot)
    }

    /// A public and a private address that no other has.
    pub(super) fn next_addresses(&mut self) -> (String, String) {
        self.addresses += 1;
        let (high, low) = (self.addresses / 250, self.addresses % 250 + 2);
        // The first network is for documentation: nobody answers there.
        let public = if high == 0 { format!("203.0.113.{low}") } else { format!("198.18.{high}.{low}") };
        (public, format!("10.19.{high}.{low}"))
    }

    /// Whether this user's account is inactive.
    pub(super) fn is_inactive(&self, user: User) -> bool {
        user == User::Carol || self.config.account == Account::Inactive
    }
}

fn api_key(user: User, ids: &mut Ids) -> String {
    format!("secret_{}_{}.{}", user.name(), ids.hex(), ids.digits())
}
