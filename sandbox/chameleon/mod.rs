//! A stand-in of a Chameleon site: Keystone, Blazar, Nova, Glance and Neutron on one port of the loopback, in this process.
//!
//! It answers what the real services were seen to answer, with their statuses and their words, also where these are odd:
//! the tests beside it say which. It starts in milliseconds, and many can run at once. It makes no host: nobody can log in
//! anywhere. It never removes duplicates: two POSTs make two things.

mod advance;
mod answer;
mod blazar;
mod clock;
mod config;
mod control;
mod enforce;
mod glance;
mod ids;
mod keys;
mod keystone;
mod leases;
mod neutron;
mod nova;
mod select;
mod serve;
mod snapshot;
mod state;
mod store;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::error::{Doing as _, ErrorKind, Result};

pub use super::faults::{LogEntry, Rule};
pub use config::{Bug, Config, HostConfig, ImageConfig, Quirks, Service, User};
pub use snapshot::{FloatingIpSeen, KeyPairSeen, LeaseSeen, PortSeen, ServerSeen, Snapshot};

use super::door::Door;
use super::wire::{Breakable, Wire};
use state::{Lease, LeaseStatus, Shared, State};

/// What a user logs in with, and who that is.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The application credential's id.
    pub id: String,
    /// Its secret.
    pub secret: String,
    /// The user's id.
    pub user_id: String,
    /// The user's name.
    pub user: String,
    /// The project's id.
    pub project_id: String,
    /// The project's name.
    pub project: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Credentials of {} in {}", self.user, self.project)
    }
}

/// A running stand-in; it ends when this is dropped.
#[derive(Debug)]
pub struct Sandbox {
    shared: Shared,
    base: String,
    task: JoinHandle<()>,
}

impl Sandbox {
    /// Starts one; it answers as soon as this returns.
    pub async fn start(config: Config) -> Result<Self> {
        let doing = || "start the stand-in of Chameleon".to_owned();
        let listener = TcpListener::bind(("127.0.0.1", config.port)).await.doing(ErrorKind::Internal, doing)?;
        let address = listener.local_addr().doing(ErrorKind::Internal, doing)?;
        let base = format!("http://{address}");
        let shared = Shared::new(Door::of(address)?, State::new(config, base.clone()));
        let router = axum::Router::new().fallback(serve::answer).with_state(shared.clone());
        let service = router.into_make_service_with_connect_info::<Wire>();
        let task = tokio::spawn(async move {
            // It ends by being dropped, and says nothing then.
            let _ = axum::serve(Breakable(listener), service).await;
        });
        Ok(Self { shared, base, task })
    }

    /// Where users log in: `OS_AUTH_URL`.
    pub fn auth_url(&self) -> String {
        format!("{}/identity/v3", self.base)
    }

    /// Where it is steered from other processes.
    pub fn control_url(&self) -> String {
        format!("{}/control", self.base)
    }

    /// The port on the loopback; 0 for none.
    pub fn port(&self) -> u16 {
        self.shared.door().port()
    }

    /// What a request for the control carries in [`CONTROL_HEADER`](super::CONTROL_HEADER).
    pub fn control_secret(&self) -> &str {
        self.shared.door().secret()
    }

    /// The region's name.
    pub fn region(&self) -> String {
        self.shared.state().config.region.clone()
    }

    /// What this user logs in with.
    pub fn credentials(&self, user: User) -> Credentials {
        let state = self.shared.state();
        let caller = State::caller(user);
        let found = state.credentials.iter().find(|credential| credential.user == user);
        let (id, secret) = found.map(|found| (found.id.clone(), found.secret.clone())).unwrap_or_default();
        Credentials {
            id,
            secret,
            user_id: caller.user_id,
            user: caller.user,
            project_id: caller.project_id,
            project: caller.project,
        }
    }

    /// What the identity provider would have given this user, for `v3oidcaccesstoken`.
    pub fn access_token(&self, user: User) -> String {
        let state = self.shared.state();
        let found = state.access_tokens.iter().find(|(_, of)| **of == user);
        found.map(|(token, _)| token.clone()).unwrap_or_default()
    }

    /// A token with a project, for who logs in with a bare one.
    pub fn token(&self, user: User) -> String {
        let mut state = self.shared.state();
        let (now, id) = (state.now(), state.ids.token());
        let expires = clock::after(now, state.config.token_life);
        let token = state::Token { user, scoped: true, method: "token", credential: None, issued: now, expires };
        state.tokens.insert(id.clone(), token);
        id
    }

    /// Ends all tokens now.
    pub fn expire_tokens(&self) {
        let mut state = self.shared.state();
        let now = state.now();
        state.tokens.values_mut().for_each(|token| token.expires = now);
    }

    /// Takes a credential away, as a user does at the site's web pages.
    pub fn revoke(&self, user: User) {
        self.shared.state().credentials.retain(|credential| credential.user != user);
    }

    /// Everything that exists.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.shared.state())
    }

    /// The next server that would come up fails with these words.
    pub fn fail_server(&self, fault: &str) {
        self.shared.state().failures.push_back(fault.to_owned());
    }

    /// Some of the lease's hosts have failed.
    pub fn degrade(&self, lease: &str) -> bool {
        self.shared.state().on_lease(lease, |lease| {
            lease.degraded = true;
            lease.reservations.iter_mut().for_each(|part| part.missing = true);
        })
    }

    /// The service fails on this lease: its status is ERROR.
    pub fn break_lease(&self, lease: &str) -> bool {
        self.shared.state().on_lease(lease, |lease| {
            lease.status = LeaseStatus::Error;
            lease.reservations.iter_mut().for_each(|part| part.status = "error");
        })
    }

    /// Somebody whom we do not know has this host in this time; the lease's id, or none when there is no such host.
    pub fn foreign_lease(&self, node: &str, start: Timestamp, end: Timestamp) -> Option<String> {
        self.shared.state().foreign_lease(node, start, end)
    }

    /// Somebody deletes this lease, and what stands on it.
    pub fn delete_lease(&self, lease: &str) -> bool {
        self.shared.state().delete_lease(lease).status < 300
    }
}

super::control::steering!(Sandbox, Config);

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    pub(in crate::sandbox::chameleon) fn on_lease(&mut self, id: &str, change: impl FnOnce(&mut Lease)) -> bool {
        self.leases.get_mut(id).map(change).is_some()
    }

    fn foreign_lease(&mut self, node: &str, start: Timestamp, end: Timestamp) -> Option<String> {
        let host = self.config.hosts.iter().find(|host| host.name == node)?.id.clone();
        let now = self.now();
        let lease = Lease {
            id: self.ids.uuid(),
            name: "somebody-elses".to_owned(),
            user_id: Self::user_id("mallory"),
            project_id: Self::project_id("CHI-ELSEWHERE"),
            start,
            end,
            trust_id: self.ids.hex(),
            status: LeaseStatus::Pending,
            before: LeaseStatus::Pending,
            since: now,
            degraded: false,
            created: now,
            updated: now,
            reservations: vec![state::Reservation {
                id: self.ids.uuid(),
                resource_id: self.ids.uuid(),
                status: "pending",
                missing: false,
                created: now,
                updated: now,
                what: state::Reserved::Hosts {
                    hypervisor_properties: String::new(),
                    resource_properties: format!("[\"==\", \"$node_name\", \"{node}\"]"),
                    min: 1,
                    max: 1,
                    hosts: vec![host],
                },
            }],
            events: Vec::new(),
        };
        let id = lease.id.clone();
        self.leases.add(lease, Some(now));
        self.advance_all();
        Some(id)
    }
}
