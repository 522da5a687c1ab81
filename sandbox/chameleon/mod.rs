//! A stand-in for a Chameleon site: Keystone, Blazar, Nova, Glance and Neutron on one port of the loopback, in this
//! process.
//!
//! Its answers were observed at the real services, with their statuses and messages, odd ones included: see the tests
//! beside it. It starts in milliseconds, and many can run at once. It creates no hosts, so there is nothing to log in
//! to. It never removes duplicates: two POSTs create two resources.

mod blazar;
mod config;
mod format;
mod glance;
mod issuer;
mod keys;
mod keystone;
mod leases;
mod life;
mod neutron;
mod nova;
mod records;
mod select;
mod serve;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinHandle;

use super::clock::after;
use super::door::Door;
use super::server;
use crate::error::Result;

pub use super::faults::{LogEntry, Rule};
pub use config::{Bug, Config, HostConfig, ImageConfig, IssuerConfig, Quirks, Service, User};
pub use snapshot::{FloatingIpSnapshot, KeyPairSnapshot, LeaseSnapshot, PortSnapshot, ServerSnapshot, Snapshot};

use records::{LeaseStatus, Token};
use state::{Shared, State};

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
        let (listener, address) = server::bind(config.port, "Chameleon").await?;
        let base = format!("http://{address}");
        let shared = Shared::new(Door::of(address)?, State::new(config, base.clone()));
        let task = server::spawn(listener, shared.clone());
        Ok(Self { shared, base, task })
    }

    /// Keystone's URL, for `OS_AUTH_URL`.
    pub fn auth_url(&self) -> String {
        format!("{}/identity/v3", self.base)
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

    /// URL of the identity provider's discovery document, for `OS_DISCOVERY_ENDPOINT`.
    pub fn discovery_endpoint(&self) -> String {
        format!("{}{}", self.base, issuer::DISCOVERY)
    }

    /// A refresh token of a new login of this user, as a confirmed device code gives one.
    pub fn refresh_token(&self, user: User) -> String {
        self.shared.state().begin_login(user)
    }

    /// Confirms a device code as this user, as on the identity provider's page; false if it does not exist.
    pub fn confirm(&self, code: &str, user: User) -> bool {
        self.shared.state().confirm_code(code, Some(user))
    }

    /// Refuses a device code; false if it does not exist.
    pub fn refuse(&self, code: &str) -> bool {
        self.shared.state().confirm_code(code, None)
    }

    /// The codes that wait to be confirmed.
    pub fn codes(&self) -> Vec<String> {
        self.shared.state().issuer.open_codes()
    }

    /// Logins that ended because a replaced refresh token was used once more.
    pub fn log_outs(&self) -> usize {
        self.shared.state().issuer.log_outs
    }

    /// The access tokens that logins were given.
    pub fn access_tokens_given(&self) -> Vec<String> {
        self.shared.state().issuer.given.clone()
    }

    /// Ends all logins, as an administrator can.
    pub fn end_logins(&self) {
        self.shared.state().issuer.end_all();
    }

    /// The application credentials of a user, by name.
    pub fn application_credentials(&self, user: User) -> Vec<String> {
        let state = self.shared.state();
        let of_user = state.credentials.iter().filter(|credential| credential.user == user);
        of_user.map(|credential| credential.name.clone()).collect()
    }

    /// Gives an application credential an end; false if it does not exist.
    pub fn ends_at(&self, id: &str, end: Timestamp) -> bool {
        let mut state = self.shared.state();
        state.credentials.iter_mut().find(|known| known.id == id).map(|known| known.expires = Some(end)).is_some()
    }

    /// Issues a scoped token, for tests that skip the login.
    pub fn token(&self, user: User) -> String {
        let mut state = self.shared.state();
        let (now, id) = (state.now(), state.ids.token());
        let expires = after(now, state.config.token_life);
        let token = Token { user, other: None, scoped: true, method: "token", credential: None, issued: now, expires };
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
