//! Hosts for instances: made when one is launched, ended when it goes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::hosts::{Boot, Hosts};
use super::serve::Shared;
use super::state::{Host, Instance, Phase, State};

/// How often it is looked whether an instance came or went.
const LOOK: Duration = Duration::from_millis(50);

/// Makes and ends hosts until it is dropped.
pub(super) async fn wire(shared: Shared, hosts: Arc<dyn Hosts>) {
    let mut made: BTreeSet<String> = BTreeSet::new();
    loop {
        let (come, alive) = shared.state().due_hosts();
        for boot in come {
            made.insert(boot.id.clone());
            let (shared, hosts) = (shared.clone(), Arc::clone(&hosts));
            tokio::spawn(async move {
                let told = hosts.boot(&boot).await;
                let mut state = shared.state();
                match told {
                    Ok(address) => state.wire(&boot.id, address, false),
                    Err(_) => state.on_instance(&boot.id, |instance| instance.phase = Phase::Unhealthy),
                };
            });
        }
        for id in made.iter().filter(|id| !alive.contains(*id)).cloned().collect::<Vec<_>>() {
            // What cannot be ended now is tried again at the next look.
            if hosts.end(&id).await.is_ok() {
                made.remove(&id);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

impl State {
    /// Instances that are to get a host now, and the ids of those that are to have one.
    fn due_hosts(&mut self) -> (Vec<Boot>, BTreeSet<String>) {
        let mut come = Vec::new();
        for at in 0..self.instances.len() {
            let instance = &self.instances[at];
            if instance.host == (Host::Awaited { begun: false }) && instance.holds() {
                come.push(self.boot(instance));
                self.instances[at].host = Host::Awaited { begun: true };
            }
        }
        let alive = self.instances.iter().filter(|instance| is_up(instance)).map(|instance| instance.id.clone());
        (come, alive.collect())
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
