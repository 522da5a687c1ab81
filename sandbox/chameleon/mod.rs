//! A stand-in for a Chameleon site: Keystone, Blazar, Nova, Glance and Neutron on one port of the loopback, in this
//! process.
//!
//! Its answers were observed at the real services, with their statuses and messages, odd ones included: see the tests
//! beside it. It starts in milliseconds, and many can run at once. It creates no hosts, so there is nothing to log in
//! to. It never removes duplicates: two POSTs create two resources.

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
pub use snapshot::{FloatingIpSnapshot, KeyPairSnapshot, LeaseSnapshot, PortSnapshot, ServerSnapshot, Snapshot};

use super::door::Door;
use super::wire::{Breakable, Wire};
use state::{Lease, LeaseStatus, Shared, State};

/// An application credential, with its user and project.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Id of the application credential.
    pub id: String,
    /// Secret of the application credential.
    pub secret: String,
    /// Id of the user.
    pub user_id: String,
    /// Name of the user.
    pub user: String,
    /// Id of the project.
    pub project_id: String,
    /// Name of the project.
    pub project: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Credentials of {} in {}", self.user, self.project)
    }
}

/// A running stand-in; ends when dropped.
#[derive(Debug)]
pub struct Sandbox {
    shared: Shared,
    base: String,
    task: JoinHandle<()>,
}

impl Sandbox {
    /// Starts a stand-in; it answers as soon as this returns.
    pub async fn start(config: Config) -> Result<Self> {
        let doing = || "start the stand-in for Chameleon".to_owned();
        let listener = TcpListener::bind(("127.0.0.1", config.port)).await.doing(ErrorKind::Internal, doing)?;
        let address = listener.local_addr().doing(ErrorKind::Internal, doing)?;
        let base = format!("http://{address}");
        let shared = Shared::new(Door::of(address)?, State::new(config, base.clone()));
        let router = axum::Router::new().fallback(serve::answer).with_state(shared.clone());
        let service = router.into_make_service_with_connect_info::<Wire>();
        let task = tokio::spawn(async move {
            // It ends when dropped, without a result.
            let _ = axum::serve(Breakable(listener), service).await;
        });
        Ok(Self { shared, base, task })
    }

    /// Keystone's URL, for `OS_AUTH_URL`.
    pub fn auth_url(&self) -> String {
        format!("{}/identity/v3", self.base)
    }

    /// URL of the control, for other processes.
    pub fn control_url(&self) -> String {
        format!("{}/control", self.base)
    }

    /// Port on the loopback; 0 for none.
    pub fn port(&self) -> u16 {
        self.shared.door().port()
    }

    /// The secret that requests to the control carry in [`CONTROL_HEADER`](super::CONTROL_HEADER).
    pub fn control_secret(&self) -> &str {
        self.shared.door().secret()
    }

    /// Name of the region.
    pub fn region(&self) -> String {
        self.shared.state().config.region.clone()
    }

    /// Application credential of a user; id and secret are empty once it is revoked.
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

    /// Access token of the identity provider, for `v3oidcaccesstoken`.
    pub fn access_token(&self, user: User) -> String {
        let state = self.shared.state();
        let found = state.access_tokens.iter().find(|(_, of)| **of == user);
        found.map(|(token, _)| token.clone()).unwrap_or_default()
    }

    /// Issues a scoped token, for tests that skip the login.
    pub fn token(&self, user: User) -> String {
        let mut state = self.shared.state();
        let (now, id) = (state.now(), state.ids.token());
        let expires = clock::after(now, state.config.token_life);
        let token = state::Token { user, scoped: true, method: "token", credential: None, issued: now, expires };
        state.tokens.insert(id.clone(), token);
        id
    }

    /// Expires all tokens now.
    pub fn expire_tokens(&self) {
        let mut state = self.shared.state();
        let now = state.now();
        state.tokens.values_mut().for_each(|token| token.expires = now);
    }

    /// Deletes a user's application credential, as in the site's web console.
    pub fn revoke(&self, user: User) {
        self.shared.state().credentials.retain(|credential| credential.user != user);
    }

    /// All resources that exist.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.shared.state())
    }

    /// Makes the next server that would come up fail with this message.
    pub fn fail_server(&self, fault: &str) {
        self.shared.state().failures.push_back(fault.to_owned());
    }

    /// Marks a lease as degraded, as if some of its hosts had failed; false if it does not exist.
    pub fn degrade(&self, lease: &str) -> bool {
        self.shared.state().on_lease(lease, |lease| {
            lease.degraded = true;
            lease.reservations.iter_mut().for_each(|part| part.missing = true);
        })
    }

    /// Sets a lease to ERROR, as if the service had failed on it; false if it does not exist.
    pub fn break_lease(&self, lease: &str) -> bool {
        self.shared.state().on_lease(lease, |lease| {
            lease.status = LeaseStatus::Error;
            lease.reservations.iter_mut().for_each(|part| part.status = "error");
        })
    }

    /// Leases a host to an unknown user for a period; returns the lease's id, or `None` if the host does not exist.
    pub fn foreign_lease(&self, node: &str, start: Timestamp, end: Timestamp) -> Option<String> {
        self.shared.state().foreign_lease(node, start, end)
    }

    /// Deletes a lease and its servers, as another user would; false if that fails.
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
            project_id: Self::project_id("CHI-FOREIGN"),
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
