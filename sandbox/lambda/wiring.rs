//! Hosts for instances: made when one is launched, ended when it goes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::hosts::{Boot, Hosts};
use super::state::Shared;
use super::state::{Host, Instance, Phase, State};
use crate::error::Result;

/// How often it is looked whether an instance came or went.
const INSPECT: Duration = Duration::from_millis(50);

/// How often a host that is left is tried to be ended, once the stand-in ends.
const ATTEMPTS: u32 = 5;

/// Makes and ends hosts, until the stand-in ends: then all of them end.
pub(super) async fn wire(shared: Shared, hosts: Arc<dyn Hosts>) -> Result<()> {
    let mut made: BTreeSet<String> = BTreeSet::new();
    let mut booting: JoinSet<String> = JoinSet::new();
    let mut attempts = 0;
    loop {
        let (come, alive, is_closing) = shared.state().due_hosts();
        for boot in come {
            let (shared, hosts) = (shared.clone(), Arc::clone(&hosts));
            booting.spawn(async move {
                let told = hosts.boot(&boot).await;
                let mut state = shared.state();
                match told {
                    Ok(address) => state.wire(&boot.id, address, false),
                    Err(_) => state.on_instance(&boot.id, |instance| instance.phase = Phase::Unhealthy),
                };
                boot.id
            });
        }
        // Only what has come up is ended: a boot that goes on would make what was just removed.
        while let Some(done) = booting.try_join_next() {
            made.extend(done.ok());
        }
        let mut failed = None;
        for id in made.iter().filter(|id| is_closing || !alive.contains(*id)).cloned().collect::<Vec<_>>() {
            match hosts.end(&id).await {
                Ok(()) => drop(made.remove(&id)),
                // It is tried again at the next look.
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
    /// Instances that are to get a host now, the ids of those that are to have one, and whether the stand-in ends.
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
        let alive = self.instances.iter().filter(|instance| is_up(instance)).map(|instance| instance.id.clone());
        (come, alive.collect(), self.is_closing)
    }

    /// What a host of this instance is made of.
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

    /// Its host is there.
    pub(super) fn wire(&mut self, id: &str, address: SocketAddr, answers: bool) -> bool {
        let now = self.now();
        self.on_instance(id, |instance| {
            instance.host = Host::At(address);
            instance.answers = answers;
            // The boot took as long as it took: nothing happens before now.
            if let Phase::Booting { until } = &mut instance.phase {
                *until = (*until).max(now);
            }
        })
    }

    /// Changes an instance; whether there is one.
    pub(super) fn on_instance(&mut self, id: &str, change: impl FnOnce(&mut Instance)) -> bool {
        self.instance(id).map(change).is_some()
    }
}

/// Whether its host is to be there; one that is terminating has stopped to answer.
pub(super) fn is_up(instance: &Instance) -> bool {
    matches!(instance.phase, Phase::Booting { .. } | Phase::Active | Phase::Unhealthy)
}
