//! The state of a stand-in.

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

/// The state, as all requests share it.
pub(super) type Shared = shared::Shared<State>;

/// The whole state of a stand-in.
#[derive(Debug)]
pub(super) struct State {
    pub(super) config: Config,
    pub(super) clock: Clock,
    pub(super) ids: Ids,
    pub(super) faults: Faults,
    pub(super) limiter: Limiter,
    pub(super) ledger: Ledger,
    /// The user of each API key.
    pub(super) api_keys: BTreeMap<String, User>,
    pub(super) instances: Vec<Instance>,
    pub(super) keys: Vec<SshKey>,
    pub(super) file_systems: Vec<FileSystem>,
    pub(super) rulesets: Vec<Ruleset>,
    /// Firewall rules of the account.
    pub(super) global_rules: Vec<Value>,
    /// Free capacity, by type and region.
    pub(super) free: BTreeMap<(String, String), Free>,
    /// Future capacity: when, where, how many.
    pub(super) coming: Vec<(Timestamp, (String, String), u32)>,
    /// Outcomes of the next launches.
    pub(super) outcomes: VecDeque<Outcome>,
    /// Whether the stand-in is shutting down and creates no more hosts.
    pub(super) is_closing: bool,
    addresses: u32,
}

/// Free capacity of a type in a region.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Free {
    pub(super) count: u32,
    /// Whether it is listed but cannot be launched.
    pub(super) is_phantom: bool,
}

/// Phase in the life of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Booting { until: Timestamp },
    Active,
    Unhealthy,
    Preempted { since: Timestamp },
    Terminating { since: Timestamp },
    Terminated { since: Timestamp },
}

/// The host of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Host {
    /// No host, and a made-up address.
    MadeUp,
    /// A host will be created; `begun` once its creation started.
    Awaited { begun: bool },
    /// A host whose sshd has this address.
    At(SocketAddr),
}

/// A virtual machine of the account.
#[derive(Debug, Clone)]
pub(super) struct Instance {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) region: String,
    pub(super) key_names: Vec<String>,
    /// The public keys at the time of the launch.
    pub(super) public_keys: Vec<String>,
    /// Ids of file systems, and their mount points.
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
    /// The public address if there is no host.
    pub(super) made_up: String,
    pub(super) private_ip: String,
    pub(super) host: Host,
    /// Whether the creator of the host reported that sshd answers.
    pub(super) answers: bool,
    pub(super) jupyter_token: String,
    /// How many more requests to terminate it are refused.
    pub(super) refusals: u32,
    /// Whether its status is one that the document does not have.
    pub(super) is_strange: bool,
    /// Whether a test added it.
    pub(super) is_foreign: bool,
}

impl Instance {
    /// Whether the instance is billed.
    pub(super) fn is_billed(&self) -> bool {
        !matches!(self.phase, Phase::Terminated { .. } | Phase::Preempted { .. })
    }

    /// Whether the instance uses its file systems and rulesets.
    pub(super) fn holds(&self) -> bool {
        !matches!(self.phase, Phase::Terminated { .. })
    }

    /// Status, as the API names it.
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

/// An SSH key of the account.
#[derive(Debug, Clone)]
pub(super) struct SshKey {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) public_key: String,
    pub(super) shown: Timestamp,
}

/// A file system of the account.
#[derive(Debug, Clone)]
pub(super) struct FileSystem {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) region: String,
    pub(super) created: Timestamp,
    pub(super) shown: Timestamp,
    pub(super) by: User,
}

/// A firewall ruleset of a region.
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

    /// Time from which lists show a resource created now.
    pub(super) fn shown(&self) -> Timestamp {
        if self.has_bug(Bug::LateForever) { Timestamp::MAX } else { after(self.now(), self.config.late) }
    }

    /// How many resources one creation makes: one, except for deliberate bugs.
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

    /// Boot time of an instance type.
    pub(super) fn boot_of(&self, kind: &str) -> Duration {
        self.kind(kind).and_then(|kind| kind.boot).unwrap_or(self.config.boot)
    }

    /// A new public and a new private address.
    pub(super) fn next_addresses(&mut self) -> (String, String) {
        self.addresses += 1;
        let (high, low) = (self.addresses / 250, self.addresses % 250 + 2);
        // Networks for documentation and benchmarks: nobody answers there.
        let public = if high == 0 { format!("203.0.113.{low}") } else { format!("198.18.{high}.{low}") };
        (public, format!("10.19.{high}.{low}"))
    }

    /// Whether a user's account is inactive.
    pub(super) fn is_inactive(&self, user: User) -> bool {
        user == User::Carol || self.config.account == Account::Inactive
    }
}

fn api_key(user: User, ids: &mut Ids) -> String {
    format!("secret_{}_{}.{}", user.name(), ids.hex(), ids.digits())
}
