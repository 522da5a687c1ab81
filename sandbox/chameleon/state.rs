//! The state of a site: what its services share, and stores of resources whose lists are delayed.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use super::super::clock::{Clock, after};
use super::super::faults::Faults;
use super::super::ids::Ids;
use super::super::shared;
use super::config::{Bug, Config, User};
use super::format::uuid_of;
use super::records::{Credential, FloatingIp, Issuer, KeyPair, Lease, Port, Server, Token};

/// The state, as all requests share it.
pub(super) type Shared = shared::Shared<State>;

/// The whole state of a site.
#[derive(Debug)]
pub(super) struct State {
    pub(super) config: Config,
    /// `http://127.0.0.1:PORT`
    pub(super) base: String,
    pub(super) ids: Ids,
    pub(super) clock: Clock,
    pub(super) started: Timestamp,
    pub(super) credentials: Vec<Credential>,
    pub(super) tokens: BTreeMap<String, Token>,
    /// Access tokens of the identity provider.
    pub(super) access_tokens: BTreeMap<String, User>,
    pub(super) issuer: Issuer,
    pub(super) leases: Store<Lease>,
    pub(super) servers: Store<Server>,
    pub(super) ports: Store<Port>,
    pub(super) floating_ips: Store<FloatingIp>,
    pub(super) keys: Store<KeyPair>,
    /// Messages with which the next servers fail.
    pub(super) failures: VecDeque<String>,
    pub(super) faults: Faults,
}

impl State {
    pub(super) fn new(mut config: Config, base: String) -> Self {
        let clock = Clock::new(config.clock_offset);
        let mut ids = Ids::new();
        let mut number = 100;
        for host in &mut config.hosts {
            if host.id.is_empty() {
                // Real ids have gaps.
                number += 2;
                host.id = number.to_string();
            }
            if host.hypervisor.is_empty() {
                host.hypervisor = uuid_of(&host.name);
            }
        }
        let credentials = User::ALL.map(|user| Credential {
            id: ids.hex(),
            secret: ids.secret(),
            name: if user == User::AliceRestricted { "restricted" } else { "unrestricted" }.to_owned(),
            user,
            unrestricted: user != User::AliceRestricted,
            expires: None,
        });
        let access_tokens = User::ALL.into_iter().map(|user| (ids.token(), user)).collect();
        Self {
            started: clock.now(),
            config,
            base,
            ids,
            clock,
            credentials: credentials.to_vec(),
            tokens: BTreeMap::new(),
            access_tokens,
            issuer: Issuer::default(),
            leases: Store::default(),
            servers: Store::default(),
            ports: Store::default(),
            floating_ips: Store::default(),
            keys: Store::default(),
            failures: VecDeque::new(),
            faults: Faults::default(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn has(&self, bug: Bug) -> bool {
        self.config.bugs.contains(&bug)
    }

    /// Time from which lists show a resource created now; `None` for never.
    pub(super) fn shown(&self) -> Option<Timestamp> {
        (!self.has(Bug::LateForever)).then(|| after(self.now(), self.config.late))
    }

    /// Time until which lists show a resource deleted now.
    pub(super) fn hidden(&self) -> Timestamp {
        after(self.now(), self.config.late)
    }

    /// How many resources one POST creates: one, except for deliberate bugs.
    pub(super) fn copies(&self) -> usize {
        match () {
            () if self.has(Bug::LosesCreated) => 0,
            () if self.has(Bug::DuplicatesOnCreate) => 2,
            () => 1,
        }
    }

    /// A text that may contain a tag, as it is stored.
    pub(super) fn kept(&self, text: &str) -> String {
        if self.has(Bug::LosesTags) {
            text.split("gpucl").next().unwrap_or_default().to_owned()
        } else {
            text.to_owned()
        }
    }

    /// Applies everything that is due.
    pub(super) fn advance_all(&mut self) {
        let now = self.now();
        self.advance_leases(now);
        self.advance_servers(now);
    }
}

/// A resource with an id.
pub(super) trait Item {
    fn id(&self) -> &str;
}

/// The resources of one kind; lists show new ones late, and deleted ones for a while longer.
#[derive(Debug)]
pub(super) struct Store<T> {
    entries: Vec<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    /// Time from which lists show it; `None` for never.
    shown: Option<Timestamp>,
    /// Time until which lists show it, once it is deleted.
    gone: Option<Timestamp>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<T: Item> Store<T> {
    pub(super) fn add(&mut self, value: T, shown: Option<Timestamp>) {
        self.entries.push(Entry { value, shown, gone: None });
    }

    /// Deletes a resource; lists show it until `until`. False if it does not exist.
    pub(super) fn remove(&mut self, id: &str, until: Timestamp) -> bool {
        let found = self.entries.iter_mut().find(|entry| entry.gone.is_none() && entry.value.id() == id);
        found.map(|entry| entry.gone = Some(until)).is_some()
    }

    pub(super) fn get(&self, id: &str) -> Option<&T> {
        self.all().find(|value| value.id() == id)
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut T> {
        self.all_mut().find(|value| value.id() == id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter(|entry| entry.gone.is_none()).map(|entry| &entry.value)
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().filter(|entry| entry.gone.is_none()).map(|entry| &mut entry.value)
    }

    /// The resources that lists show at a time.
    pub(super) fn listed(&self, now: Timestamp) -> impl Iterator<Item = &T> {
        let is_shown = move |entry: &&Entry<T>| {
            entry.shown.is_some_and(|shown| shown <= now) && entry.gone.is_none_or(|until| now < until)
        };
        self.entries.iter().filter(is_shown).map(|entry| &entry.value)
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.all().map(|value| value.id().to_owned()).collect()
    }
}
