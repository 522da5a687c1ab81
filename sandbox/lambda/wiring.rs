//! Hosts for instances: created at the launch, ended at the termination.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::hosts::{Boot, Hosts};
use super::records::{Host, Instance, Phase};
use super::state::{Shared, State};
use crate::error::Result;

/// Interval of the checks for new and ended instances.
const INSPECT: Duration = Duration::from_millis(50);

/// Attempts to end the remaining hosts, once the stand-in ends.
const ATTEMPTS: u32 = 5;

/// Creates and ends hosts until the stand-in ends; then ends all of them.
pub(super) async fn wire(shared: Shared, hosts: Arc<dyn Hosts>) -> Result<()> {
    let mut made: BTreeSet<String> = BTreeSet::new();
    let mut booting: JoinSet<String> = JoinSet::new();
    let mut attempts = 0;
    loop {
        let (come, alive, is_closing) = shared.state().due_hosts();
        for boot in come {
            let (shared, hosts) = (shared.clone(), Arc::clone(&hosts));
            booting.spawn(async move {
                let booted = hosts.boot(&boot).await;
                let mut state = shared.state();
                match booted {
                    Ok(address) => state.wire(&boot.id, address, false),
                    Err(_) => state.on_instance(&boot.id, |instance| instance.phase = Phase::Unhealthy),
                };
                boot.id
            });
        }
        // End only hosts that have come up: a boot in progress would create again what was just removed.
        while let Some(done) = booting.try_join_next() {
            made.extend(done.ok());
        }
        let mut failed = None;
        for id in made.iter().filter(|id| is_closing || !alive.contains(*id)).cloned().collect::<Vec<_>>() {
            match hosts.end(&id).await {
                Ok(()) => drop(made.remove(&id)),
                // Retried at the next check.
                Err(error) => failed = Some(error),
            }
        }
        if is_closing && booting.is_empty() {
            attempts += 1;
            match failed {
                None => return Ok(()),
                Some(error) if attempts == ATTEMPTS => return Err(error),
                Some(_) => {}
            }
        }
        tokio::time::sleep(INSPECT).await;
    }
}

impl State {
    /// Instances that need a host now, the ids of all that should have one, and whether the stand-in ends.
    fn due_hosts(&mut self) -> (Vec<Boot>, BTreeSet<String>, bool) {
        let mut come = Vec::new();
        let open = if self.is_closing { 0..0 } else { 0..self.instances.len() };
        for at in open {
            let instance = &self.instances[at];
            if instance.host == (Host::Awaited { begun: false }) && instance.holds() {
                come.push(self.boot(instance));
                self.instances[at].host = Host::Awaited { begun: true };
            }
        }
        let alive = self.instances.iter().filter(|instance| instance.is_up()).map(|instance| instance.id.clone());
        (come, alive.collect(), self.is_closing)
    }

    /// What is needed to create the host of an instance.
    pub(super) fn boot(&self, instance: &Instance) -> Boot {
        let plain = format!("lambda-{}", instance.id.get(..8).unwrap_or_default());
        Boot {
            id: instance.id.clone(),
            hostname: instance.hostname.clone().unwrap_or(plain),
            instance_type: instance.kind.clone(),
            gpus: self.kind(&instance.kind).map_or(0, |kind| kind.gpus),
            region: instance.region.clone(),
            user_data: instance.user_data.clone(),
            public_keys: instance.public_keys.clone(),
            silent: self.config.silent,
        }
    }

    /// Sets the address of an instance's host; false if the instance does not exist.
    pub(super) fn wire(&mut self, id: &str, address: SocketAddr, answers: bool) -> bool {
        let now = self.now();
        self.on_instance(id, |instance| {
            instance.host = Host::At(address);
            instance.answers = answers;
            // A boot that took longer than configured: the instance becomes active now, not in the past.
            if let Phase::Booting { until } = &mut instance.phase {
                *until = (*until).max(now);
            }
        })
    }
}
