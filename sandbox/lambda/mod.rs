//! A stand-in of Lambda's cloud: its API on one port of the loopback, in this process.
//!
//! Nobody here has an account, so it is built from the official document alone, and is strict: every request that it gets
//! and every answer that it gives is compared with the document's facts (`contract.json`), and what the document does not
//! declare is a list of its own ([`Undeclared`]). It keeps Lambda's limits and takes Lambda's time, unless it is told not to.
//! It never removes duplicates: two launches make two instances. Its hosts are made by [`Hosts`], or by who asks its control.

mod advance;
mod catalog;
mod config;
mod contract;
mod control;
mod firewall;
mod foreign;
mod hosts;
mod instances;
mod keys;
mod offers;
mod pace;
mod refusal;
mod schema;
mod serve;
mod snapshot;
mod state;
mod storage;
#[cfg(test)]
mod tests;
mod undeclared;
mod view;
mod wiring;

use std::time::Duration;

use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::door::Door;
use super::wire::{Breakable, Wire};
use crate::error::{Doing as _, Error, ErrorKind, Result};

pub use super::clock::TimeSource;
pub use super::faults::{LogEntry, Rule};
pub use config::{Account, Bug, Config, ImageConfig, Outcome, RegionConfig, TooFast, TypeConfig, User};
pub use contract::{Validated, Violation, totals};
pub use hosts::{Boot, Hosts};
pub use pace::Pace;
pub use snapshot::{FileSystemSeen, InstanceSeen, RulesetSeen, Snapshot, SshKeySeen};
pub use undeclared::Undeclared;

use state::{Shared, State};

/// How long the last hosts may take to come up and to end.
const LAST_HOSTS: Duration = Duration::from_secs(120);

/// A running stand-in; it ends when this is dropped.
#[derive(Debug)]
pub struct Sandbox {
    shared: Shared,
    base: String,
    server: Option<JoinHandle<()>>,
    wiring: Option<JoinHandle<Result<()>>>,
}

impl Sandbox {
    /// Starts one; it answers as soon as this returns.
    pub async fn start(config: Config) -> Result<Self> {
        let doing = || "start the stand-in of Lambda".to_owned();
        let listener = TcpListener::bind(("127.0.0.1", config.port)).await.doing(ErrorKind::Internal, doing)?;
        let address = listener.local_addr().doing(ErrorKind::Internal, doing)?;
        let mut sandbox = Self::behind(Door::of(address)?, config);
        sandbox.base = format!("http://{address}");
        let router = axum::Router::new().fallback(serve::answer).with_state(sandbox.shared.clone());
        let service = router.into_make_service_with_connect_info::<Wire>();
        sandbox.server = Some(tokio::spawn(async move {
            // It ends by being dropped, and says nothing then.
            let _ = axum::serve(Breakable(listener), service).await;
        }));
        Ok(sandbox)
    }

    /// One without a port, to be asked by [`Sandbox::answer`] in this process; it is to be made within a runtime.
    pub fn detached(config: Config) -> Self {
        Self::behind(Door::shut(), config)
    }

    fn behind(door: Door, config: Config) -> Self {
        let hosts = config.hosts.clone();
        let shared = Shared::new(door, State::new(config));
        let wiring = hosts.map(|hosts| tokio::spawn(wiring::wire(shared.clone(), hosts)));
        Self { shared, base: String::new(), server: None, wiring }
    }

    /// Answers one request, without a socket; one whose answer is cut has a body that breaks.
    pub async fn answer(
        &self,
        request: axum::http::Request<axum::body::Body>,
    ) -> axum::http::Response<axum::body::Body> {
        serve::answer(axum::extract::State(self.shared.clone()), request).await
    }

    /// Where it is: `http://127.0.0.1:PORT`, without `/api/v1`.
    pub fn base_url(&self) -> String {
        self.base.clone()
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

    /// What this user logs in with; empty once it is revoked.
    pub fn key(&self, user: User) -> String {
        let state = self.shared.state();
        let found = state.api_keys.iter().find(|(_, of)| **of == user);
        found.map(|(key, _)| key.clone()).unwrap_or_default()
    }

    /// Takes a user's key away, as is done at the web pages: 401 from now on.
    pub fn revoke(&self, user: User) {
        self.shared.state().api_keys.retain(|_, of| *of != user);
    }

    /// How fast it was asked.
    pub fn pace(&self) -> Pace {
        self.shared.state().limiter.told.clone()
    }

    /// Everything that exists.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.shared.state())
    }

    /// So many of this type are free in this region from now on.
    pub fn capacity(&self, kind: &str, region: &str, count: u32) {
        self.shared.state().free_in(kind, region, count, Duration::ZERO);
    }

    /// The same, after this time of its clock.
    pub fn capacity_in(&self, kind: &str, region: &str, count: u32, wait: Duration) {
        self.shared.state().free_in(kind, region, count, wait);
    }

    /// What is free there is gone and stays listed, until [`Sandbox::capacity`] is told anew; whether any was free.
    pub fn vanish(&self, kind: &str, region: &str) -> bool {
        self.shared.state().vanish(kind, region)
    }

    /// What becomes of the next instance that is launched; each call is for one more.
    pub fn next(&self, outcome: Outcome) {
        self.shared.state().outcomes.push_back(outcome);
    }

    /// The instance is preempted; whether there is one.
    pub fn preempt(&self, id: &str) -> bool {
        self.shared.state().preempt(id)
    }

    /// The instance is unhealthy from now on.
    pub fn make_unhealthy(&self, id: &str) -> bool {
        self.shared.state().make_unhealthy(id)
    }

    /// The instance's status is one that the document does not have, as after a `shutdown` in it.
    pub fn make_strange(&self, id: &str) -> bool {
        self.shared.state().on_instance(id, |instance| instance.is_strange = true)
    }

    /// The next requests to terminate this instance are refused.
    pub fn refuse_terminate(&self, id: &str, times: u32) -> bool {
        self.shared.state().on_instance(id, |instance| instance.refusals = times)
    }

    /// Somebody terminates it at the web pages.
    pub fn terminate_behind_our_back(&self, id: &str) -> bool {
        self.shared.state().terminate_behind(id)
    }

    /// So many active machines of others, of all kinds of names; their ids.
    pub fn add_foreign(&self, count: usize) -> Vec<String> {
        self.shared.state().add_foreign(count)
    }

    /// An active machine of somebody else with this name and these tags; its id.
    pub fn add_machine(&self, name: &str, tags: &[(&str, &str)]) -> String {
        self.shared.state().add_machine(name, tags)
    }

    /// A key that the account has already; its id.
    pub fn add_ssh_key(&self, name: &str, public_key: &str) -> String {
        self.shared.state().put_key(name, public_key)
    }

    /// A file system that the account has already; its id.
    pub fn add_file_system(&self, name: &str, region: &str) -> String {
        self.shared.state().put_file_system(name, region)
    }

    /// How much was compared with the contract.
    pub fn validated(&self) -> Validated {
        self.shared.state().ledger.validated.clone()
    }

    /// What was not as the contract has it.
    pub fn violations(&self) -> Vec<Violation> {
        self.shared.state().ledger.violations.clone()
    }

    /// Forgets what was not as the contract has it, for a test that did it on purpose.
    pub fn forget_violations(&self) -> Vec<Violation> {
        std::mem::take(&mut self.shared.state().ledger.violations)
    }

    /// An error that names everything that was not as the contract has it.
    pub fn check(&self) -> Result<()> {
        let violations = self.violations();
        if violations.is_empty() {
            return Ok(());
        }
        let mut error = Error::new(ErrorKind::Internal, "keep the contract of Lambda's API");
        for violation in violations {
            error = error.because(violation);
        }
        Err(error)
    }

    /// Ends it, and all hosts that it made; those that are being made are waited for.
    pub async fn shutdown(mut self) -> Result<()> {
        let doing = || "end the hosts of the stand-in of Lambda".to_owned();
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
        // Without `shutdown` hosts stay, and who makes them is to look after that.
        self.wiring.iter().for_each(JoinHandle::abort);
    }
}
