//! The records of what a site has: credentials and tokens, leases, servers, ports and addresses, keys.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::config::User;

#[derive(Debug, Clone)]
pub(super) struct KeyPair {
    /// User id and name, since names are unique only per user.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) user_id: String,
    pub(super) public_key: String,
    pub(super) created: Timestamp,
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
    /// Another project than the user's usual one, and the role there.
    pub(super) other: Option<(String, String)>,
    pub(super) scoped: bool,
    pub(super) method: &'static str,
    /// Id of the application credential that it was issued for.
    pub(super) credential: Option<String>,
    pub(super) issued: Timestamp,
    pub(super) expires: Timestamp,
}

/// What the identity provider knows.
#[derive(Debug, Default)]
pub(super) struct Issuer {
    /// By device code.
    pub(super) codes: BTreeMap<String, Code>,
    /// By number.
    pub(super) logins: BTreeMap<u64, Login>,
    pub(super) made: u64,
    pub(super) log_outs: usize,
    /// The access tokens that were issued.
    pub(super) given: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Code {
    pub(super) user_code: String,
    pub(super) answer: Reply,
    pub(super) ends: Timestamp,
    pub(super) asked: Option<Timestamp>,
}

/// What the page's visitor has decided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Reply {
    None,
    Yes(User),
    No,
}

#[derive(Debug)]
pub(super) struct Login {
    pub(super) user: User,
    /// The refresh token that is valid now.
    pub(super) token: String,
    pub(super) ends: Timestamp,
}

impl Issuer {
    pub(super) fn open_codes(&self) -> Vec<String> {
        let open = self.codes.values().filter(|code| code.answer == Reply::None);
        open.map(|code| code.user_code.clone()).collect()
    }

    pub(super) fn end_all(&mut self) {
        self.logins.clear();
    }
}

#[derive(Debug, Clone)]
pub(super) struct Credential {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) name: String,
    pub(super) user: User,
    pub(super) unrestricted: bool,
    pub(super) expires: Option<Timestamp>,
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
