//! The state of the services.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::super::faults::Faults;
use super::super::shared::{self, Advance};
use super::clock::{Clock, after};
use super::config::{Bug, Config, User};
use super::ids::{Ids, uuid_of};
use super::store::{Item, Store};

/// The state, as all requests share it.
pub(super) type Shared = shared::Shared<State>;

impl Advance for State {
    fn advance(&mut self) {
        self.advance_all();
    }
}

/// The authenticated user of a request.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) user_id: String,
    pub(super) user: String,
    pub(super) project_id: String,
    pub(super) project: String,
    pub(super) restricted: bool,
}

/// A token; only scoped ones are accepted by the services besides Keystone.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) user: User,
    pub(super) scoped: bool,
    pub(super) method: &'static str,
    /// Id of the application credential that it was issued for.
    pub(super) credential: Option<String>,
    pub(super) issued: Timestamp,
    pub(super) expires: Timestamp,
}

/// An application credential.
#[derive(Debug, Clone)]
pub(super) struct Credential {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) name: String,
    pub(super) user: User,
    pub(super) unrestricted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseStatus {
    Pending,
    Starting,
    Active,
    Updating,
    Terminating,
    Terminated,
    Error,
}

impl LeaseStatus {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Starting => "STARTING",
            Self::Active => "ACTIVE",
            Self::Updating => "UPDATING",
            Self::Terminating => "TERMINATING",
            Self::Terminated => "TERMINATED",
            Self::Error => "ERROR",
        }
    }

    /// Whether a lease in this status may be changed or deleted.
    pub(super) fn is_stable(self) -> bool {
        matches!(self, Self::Pending | Self::Active | Self::Terminated | Self::Error)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) user_id: String,
    pub(super) project_id: String,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    pub(super) trust_id: String,
    pub(super) status: LeaseStatus,
    /// The status to return to after UPDATING.
    pub(super) before: LeaseStatus,
    /// Time of the last change of status.
    pub(super) since: Timestamp,
    pub(super) degraded: bool,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
    pub(super) reservations: Vec<Reservation>,
    pub(super) events: Vec<Event>,
}

#[derive(Debug, Clone)]
pub(super) struct Reservation {
    pub(super) id: String,
    pub(super) resource_id: String,
    pub(super) status: &'static str,
    pub(super) missing: bool,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
    pub(super) what: Reserved,
}

#[derive(Debug, Clone)]
pub(super) enum Reserved {
    Hosts {
        hypervisor_properties: String,
        resource_properties: String,
        min: u64,
        max: u64,
        /// Blazar's ids of the hosts.
        hosts: Vec<String>,
    },
    Addresses {
        network_id: String,
        amount: u64,
        required: Value,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) kind: &'static str,
    pub(super) time: Timestamp,
    pub(super) status: &'static str,
    pub(super) created: Timestamp,
    pub(super) updated: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub(super) struct Server {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) user_id: String,
    pub(super) project_id: String,
    pub(super) image: String,
    pub(super) flavor: String,
    pub(super) network: String,
    pub(super) key_name: Option<String>,
    pub(super) user_data: Option<String>,
    pub(super) metadata: Map<String, Value>,
    pub(super) reservation: Option<String>,
    /// Nova's name of its host; `None` if no host was found.
    pub(super) host: Option<String>,
    pub(super) status: &'static str,
    pub(super) fault: Option<(String, Timestamp)>,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
    pub(super) launched: Option<Timestamp>,
    /// Time at which BUILD ends.
    pub(super) ready: Timestamp,
    /// Time at which it is gone, once it is being deleted.
    pub(super) gone: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub(super) struct Port {
    pub(super) id: String,
    pub(super) project_id: String,
    pub(super) network: String,
    pub(super) server: String,
    pub(super) zone: String,
    pub(super) mac: String,
    pub(super) address: String,
    pub(super) status: &'static str,
    pub(super) created: Timestamp,
}

#[derive(Debug, Clone)]
pub(super) struct FloatingIp {
    pub(super) id: String,
    pub(super) user_id: String,
    pub(super) project_id: String,
    pub(super) address: String,
    pub(super) network: String,
    pub(super) description: String,
    pub(super) port: Option<String>,
    pub(super) status: &'static str,
    pub(super) tags: Vec<String>,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
    pub(super) revision: u32,
}

#[derive(Debug, Clone)]
pub(super) struct KeyPair {
    /// User id and name, since names are unique only per user.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) user_id: String,
    pub(super) public_key: String,
    pub(super) created: Timestamp,
}

impl KeyPair {
    pub(super) fn id_of(user_id: &str, name: &str) -> String {
        format!("{user_id}/{name}")
    }
}

impl Item for Lease {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Item for Server {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Item for Port {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Item for FloatingIp {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Item for KeyPair {
    fn id(&self) -> &str {
        &self.id
    }
}

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

    pub(super) fn project_id(project: &str) -> String {
        uuid_of(&format!("project {project}")).replace('-', "")
    }

    pub(super) fn user_id(user: &str) -> String {
        uuid_of(&format!("user {user}")).replace('-', "")
    }

    pub(super) fn caller(user: User) -> Caller {
        Caller {
            user_id: Self::user_id(user.name()),
            user: user.name().to_owned(),
            project_id: Self::project_id(user.project()),
            project: user.project().to_owned(),
            restricted: user == User::AliceRestricted,
        }
    }

    /// The user of a valid scoped token.
    pub(super) fn authenticated(&self, token: Option<&str>) -> Option<Caller> {
        let token = self.tokens.get(token?).filter(|token| token.scoped && self.now() < token.expires)?;
        let by_restricted = token.credential.as_ref().is_some_and(|id| {
            self.credentials.iter().any(|credential| &credential.id == id && !credential.unrestricted)
        });
        Some(Caller { restricted: by_restricted, ..Self::caller(token.user) })
    }

    /// The user with this id.
    pub(super) fn names(user_id: &str) -> Option<User> {
        User::ALL.into_iter().find(|user| Self::user_id(user.name()) == user_id)
    }
}
