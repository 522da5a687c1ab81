//! A stand-in for Lambda's cloud: its API on one port of the loopback, in this process.
//!
//! Nobody here has an account, so it is built from the official document alone, and is strict: every request and every
//! answer is compared with the document's facts (`contract.json`), and answers that the document does not declare are
//! listed in [`Undeclared`]. By default it has Lambda's rate limits and delays. It never removes duplicates: two
//! launches create two instances. Its hosts are created by [`Hosts`], or by a client of its control.

mod catalog;
mod config;
mod contract;
mod control;
mod firewall;
mod hosts;
mod instances;
mod keys;
mod life;
mod offers;
mod pace;
mod records;
mod refusal;
mod schema;
mod serve;
mod snapshot;
mod state;
mod storage;
#[cfg(test)]
mod tests;
mod wiring;

use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinHandle;

use super::door::Door;
use super::server;
use crate::error::{Doing as _, Error, ErrorKind, Result};

pub use super::clock::TimeSource;
pub use super::faults::{LogEntry, Rule};
pub use catalog::{ImageConfig, RegionConfig, TypeConfig};
pub use config::{Account, Bug, Config, Outcome, TooFast, User};
pub use contract::{Undeclared, Validated, Violation, totals};
pub use hosts::{Boot, Hosts};
pub use pace::Pace;
pub use snapshot::{FileSystemSnapshot, InstanceSnapshot, RulesetSnapshot, Snapshot, SshKeySnapshot};

use state::{Shared, State};

/// Timeout for the last hosts to come up and to end.
const LAST_HOSTS: Duration = Duration::from_secs(120);

/// A running stand-in; ends when dropped.
#[derive(Debug)]
pub struct Sandbox {
    shared: Shared,
    base: String,
    server: Option<JoinHandle<()>>,
    wiring: Option<JoinHandle<Result<()>>>,
}

impl Sandbox {
    /// Starts a stand-in; it answers as soon as this returns.
    pub async fn start(config: Config) -> Result<Self> {
        let (listener, address) = server::bind(config.port, "Lambda").await?;
        let mut sandbox = Self::behind(Door::of(address)?, config);
        sandbox.base = format!("http://{address}");
        sandbox.server = Some(server::spawn(listener, sandbox.shared.clone()));
        Ok(sandbox)
    }

    /// A stand-in without a port, for requests through [`Sandbox::answer`]. Must be called within a Tokio runtime.
    pub fn detached(config: Config) -> Self {
        Self::behind(Door::shut(), config)
    }

    fn behind(door: Door, config: Config) -> Self {
        let hosts = config.hosts.clone();
        let shared = Shared::new(door, State::new(config));
        let wiring = hosts.map(|hosts| tokio::spawn(wiring::wire(shared.clone(), hosts)));
        Self { shared, base: String::new(), server: None, wiring }
    }

    /// Answers one request without a socket; the body of a cut answer fails with an error.
    pub async fn answer(
        &self,
        request: axum::http::Request<axum::body::Body>,
    ) -> axum::http::Response<axum::body::Body> {
        server::answer(axum::extract::State(self.shared.clone()), request).await
    }

    /// Base URL: `http://127.0.0.1:PORT`, without `/api/v1`.
    pub fn base_url(&self) -> String {
        self.base.clone()
    }

    /// API key of a user; empty once it is revoked.
    pub fn key(&self, user: User) -> String {
        let state = self.shared.state();
        let found = state.api_keys.iter().find(|(_, of)| **of == user);
        found.map(|(key, _)| key.clone()).unwrap_or_default()
    }

    /// Revokes a user's API key, as in the web console: 401 from now on.
    pub fn revoke(&self, user: User) {
        self.shared.state().api_keys.retain(|_, of| *of != user);
    }

    /// Counts and rates of the requests so far.
    pub fn pace(&self) -> Pace {
        self.shared.state().limiter.pace.clone()
    }

    /// All resources that exist.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.shared.state())
    }

    /// Sets how many instances of a type are free in a region.
    pub fn capacity(&self, kind: &str, region: &str, count: u32) {
        self.shared.state().free_in(kind, region, count, Duration::ZERO);
    }

    /// Like [`Sandbox::capacity`], after a delay of the stand-in's clock.
    pub fn capacity_in(&self, kind: &str, region: &str, count: u32, wait: Duration) {
        self.shared.state().free_in(kind, region, count, wait);
    }

    /// Takes all free instances away but keeps them listed, until [`Sandbox::capacity`] is set again. Returns whether
    /// any were free.
    pub fn vanish(&self, kind: &str, region: &str) -> bool {
        self.shared.state().vanish(kind, region)
    }

    /// Sets the outcome of the next launch; calls queue up.
    pub fn next(&self, outcome: Outcome) {
        self.shared.state().outcomes.push_back(outcome);
    }

    /// Preempts an instance; false if it does not exist.
    pub fn preempt(&self, id: &str) -> bool {
        self.shared.state().preempt(id)
    }

    /// Makes an instance unhealthy; false if it does not exist.
    pub fn make_unhealthy(&self, id: &str) -> bool {
        self.shared.state().make_unhealthy(id)
    }

    /// Gives an instance a status that the document does not have, as after a `shutdown` inside; false if it does not
    /// exist.
    pub fn make_strange(&self, id: &str) -> bool {
        self.shared.state().on_instance(id, |instance| instance.is_strange = true)
    }

    /// Refuses the next `times` requests to terminate an instance; false if it does not exist.
    pub fn refuse_terminate(&self, id: &str, times: u32) -> bool {
        self.shared.state().on_instance(id, |instance| instance.refusals = times)
    }

    /// Terminates an instance, as another user does in the web console; false if it does not exist.
    pub fn terminate_behind_our_back(&self, id: &str) -> bool {
        self.shared.state().terminate_behind(id)
    }

    /// Adds active instances of other users, with various names; returns their ids.
    pub fn add_foreign(&self, count: usize) -> Vec<String> {
        self.shared.state().add_foreign(count)
    }

    /// Adds an active instance of another user with this name and these tags; returns its id.
    pub fn add_machine(&self, name: &str, tags: &[(&str, &str)]) -> String {
        self.shared.state().add_machine(name, tags)
    }

    /// Adds an SSH key to the account; returns its id.
    pub fn add_ssh_key(&self, name: &str, public_key: &str) -> String {
        self.shared.state().put_key(name, public_key)
    }

    /// Adds a file system to the account; returns its id.
    pub fn add_file_system(&self, name: &str, region: &str) -> String {
        self.shared.state().put_file_system(name, region)
    }

    /// Counts of the comparisons with the contract.
    pub fn validated(&self) -> Validated {
        self.shared.state().ledger.validated.clone()
    }

    /// All recorded violations of the contract.
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.state().ledger.violations.clone()
    }

    /// Clears and returns the violations, for a test that provokes them.
    pub fn forget_violations(&self) -> Vec<Violation> {
        std::mem::take(&mut self.shared.state().ledger.violations)
    }

    /// Fails with all violations of the contract.
    pub fn check(&self) -> Result<()> {
        let violations = self.violations();
        if violations.is_empty() {
            return Ok(());
        }
        let mut error = Error::new(ErrorKind::Internal, "keep to the contract of Lambda's API");
        for violation in violations {
            error = error.because(violation);
        }
        Err(error)
    }

    /// Ends the stand-in and all hosts that it created; waits for those that are still booting.
    pub async fn shutdown(mut self) -> Result<()> {
        let doing = || "end the hosts of the stand-in for Lambda".to_owned();
        self.shared.state().is_closing = true;
        let Some(wiring) = self.wiring.take() else { return Ok(()) };
        tokio::time::timeout(LAST_HOSTS, wiring)
            .await
            .doing(ErrorKind::Timeout, doing)?
            .doing(ErrorKind::Internal, doing)?
    }
}

super::control::steering!(Sandbox, Config);

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.server.iter().for_each(JoinHandle::abort);
        // Without `shutdown` the hosts stay, and `Hosts` must clean them up.
        self.wiring.iter().for_each(JoinHandle::abort);
    }
}
