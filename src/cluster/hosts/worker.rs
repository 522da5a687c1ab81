//! One worker by hand: it is stopped, started or killed by one exec on its host.

use super::expected::project_of;
use super::goal::no_place;
use super::open::open_world;
use super::world::{ProjectWorld, Purpose};
use crate::cluster::settings::Settings;
use crate::engine::Ledger;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::runtime::project::ByHand;
use crate::spec::{NodeSpec, Spec};
use crate::state::{ClusterState, Store};

/// Stops, starts or kills a worker.
///
/// That it is to be stopped is on record before it ends, and that it is to run only once it runs: a command that was
/// broken off in between is repeated, or `up` starts the worker.
pub(super) async fn by_hand(
    settings: &Settings,
    spec: &Spec,
    store: Store,
    worker: &NodeSpec,
    by_hand: ByHand,
) -> Result<()> {
    let world = open_world(settings, spec, &store, Purpose::Glance)?;
    let ledger = Ledger::new(store);
    world.recall_places(&ledger.state()).await?;
    let (project, key) = (project_of(&worker.host), worker.key.clone());
    if by_hand == ByHand::Stop {
        ledger.note_project(&project, |project| project.stopped_by_hand.extend([key.clone()]))?;
    }
    world.act_on(worker, by_hand).await?;
    if by_hand == ByHand::Start {
        ledger.note_project(&project, |project| project.stopped_by_hand.retain(|stopped| *stopped != key))?;
    }
    ledger.compact()
}

impl ProjectWorld {
    /// Takes the places of the hosts from the state; asks the provider for those that are not there.
    async fn recall_places(&self, known: &ClusterState) -> Result<()> {
        let place = |host: Key| Some((host.clone(), known.host(&host)?.place.clone()?));
        let places: Option<Vec<_>> = self.host_keys().into_iter().map(place).collect();
        let Some(places) = places else {
            let observed = self.observe_resources().await?;
            return self.find_places(known, &observed).await.map(|_| ());
        };
        for (host, place) in &places {
            self.config.connector.know(host, place).await;
        }
        self.observations().places = places.into_iter().collect();
        Ok(())
    }

    async fn act_on(&self, worker: &NodeSpec, by_hand: ByHand) -> Result<()> {
        let host = &worker.host;
        self.place_of(host).ok_or_else(|| no_place(host))?;
        let (of_host, of_worker) = (self.config.scope.tag(host), self.config.scope.tag(&worker.key));
        let script = self.runtime().worker_script(&of_host.to_string(), &self.folders(host), &of_worker, by_hand);
        let doing = format!("{} {}", by_hand.name(), worker.key.display_name());
        let lines = self.script(host, &format!("{doing} on"), &script).await?;
        if lines.last().is_some_and(|line| *line == by_hand.done()) {
            return Ok(());
        }
        let said: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.starts_with("::")).collect();
        let why = if said.is_empty() { "its host did not say that it is done".to_owned() } else { said.join("\n") };
        let cluster = &self.config.spec.name;
        Err(Error::new(ErrorKind::Host, doing)
            .because(why)
            .hint(format!("gpucl status -c {cluster}   # what runs"))
            .hint("gpucl up   # brings back what does not run"))
    }
}
