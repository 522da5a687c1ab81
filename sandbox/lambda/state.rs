//! The state of a stand-in.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::clock::{Clock, after};
use super::super::faults::Faults;
use super::super::ids::Ids;
use super::super::shared;
use super::config::{Account, Bug, Config, Outcome, User};
use super::contract::Ledger;
use super::pace::Limiter;
use super::records::{FileSystem, Free, Instance, Ruleset, SshKey};

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
