//! `stop` and `down` of a cluster on hosts.

use super::open::open_world;
use super::world::Purpose;
use crate::agent::Ended;
use crate::agent::deadline::lift;
use crate::cluster::errors::missed;
use crate::cluster::options::DownOptions;
use crate::cluster::outcome::Proof;
use crate::cluster::settings::Settings;
use crate::engine::{Ledger, NothingElse, Pipeline, World as _};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::plan::Goal;
use crate::runtime::project::CleanOptions;
use crate::spec::Spec;
use crate::state::{ClusterState, Store};
use crate::util::human;

/// Ends all nodes and returns the resources that are kept.
pub(super) async fn stop(settings: &Settings, spec: &Spec, store: Store) -> Result<Vec<String>> {
    let world = open_world(settings, spec, &store, Purpose::Inspect)?;
    let ledger = Ledger::new(store);
    let pipeline = Pipeline {
        world: &world,
        replan: &NothingElse,
        ledger: &ledger,
        events: &settings.events,
        cancel: &settings.cancel,
    };
    let planned = pipeline.plan(&Goal::Stop).await?;
    let result = pipeline.execute(&planned.plan).await.into_result();
    let kept = ledger.compact();
    result.map_err(|error| error.hint(format!("gpucl stop -c {}   # goes on from here", spec.name)))?;
    kept?;
    let resources = planned.observed.resources.iter();
    Ok(resources.map(|resource| format!("{} {}", resource.kind.0, resource.key.display_name())).collect())
}

/// Whether a host has traces of this cluster in this spec's runtime.
pub(super) async fn leaves_traces(settings: &Settings, spec: &Spec, store: &Store) -> bool {
    let Ok(world) = open_world(settings, spec, store, Purpose::Inspect) else { return false };
    world.observe(store.state()).await.is_ok_and(|observed| !observed.projects.is_empty())
}

/// The adopted resources, by key and id: used by the cluster but not created for it.
fn adopted(known: &ClusterState) -> Vec<(Key, String)> {
    let items = known.items.iter().filter(|(_, item)| item.adopted);
    items.filter_map(|(key, item)| Some((key.clone(), item.id.clone()?))).collect()
}

/// Leaves every host as it was found, and removes the cluster's state.
pub(super) async fn down(settings: &Settings, spec: &Spec, store: Store, options: DownOptions) -> Result<Proof> {
    let clean = CleanOptions { ends_cluster: true, keep_data: options.keep_data, purge: options.purge };
    let world = open_world(settings, spec, &store, Purpose::Remove(clean))?;
    let ledger = Ledger::new(store);
    let pipeline = Pipeline {
        world: &world,
        replan: &NothingElse,
        ledger: &ledger,
        events: &settings.events,
        cancel: &settings.cancel,
    };
    let adopted = adopted(&ledger.state());
    let known = ledger.state();
    let first = match pipeline.remove_all().await {
        Ok(first) => first,
        Err(error) => {
            let _ = ledger.compact();
            return Err(error.hint(format!("gpucl down -c {}   # goes on from here", spec.name)));
        }
    };
    world.report_restarts(&known);
    // What was removed from the hosts was reported at that moment.
    let resources =
        first.observed.resources.iter().map(|found| format!("{} {} ({})", found.kind.0, found.key, found.id));
    let mut proof = Proof { removed: resources.collect(), ..Proof::default() };
    for (key, id) in &adopted {
        match &world.config.provider.reservations() {
            Some(reservations) if options.release_lease => {
                reservations.delete(id).await?;
                proof.removed.push(format!("{} ({id}), which was not made for the cluster", key.display_name()));
            }
            Some(reservations) => proof.kept.extend(reservations.lease(id).await.ok().map(|lease| {
                let (name, end) = (&lease.name, human::local(lease.end));
                format!("the lease {name} until {end}; `gpucl lease delete {id}` deletes it")
            })),
            None => {}
        }
    }
    let scope = settings.scope(&spec.name);
    if world.leaves_no_trace() && !first.observed.resources.is_empty() {
        proof.seen.push("what was on the hosts is gone with them".to_owned());
    }
    for found in &first.observed.projects {
        proof.seen.push(format!(
            "no {} on {} is tagged {}",
            world.runtime().traces(),
            found.host.display_name(),
            scope.tag(&found.host)
        ));
    }
    let (tried, open) = {
        let observations = world.observations();
        (observations.tried_ports, observations.open_ports)
    };
    if tried > 0 && open == 0 {
        proof.seen.push(format!("tried the {tried} ports that it used: nothing listens on them"));
    }
    proof.seen.push(Proof::at_provider(spec.provider.name()));
    proof.unknown.extend(world.missed().iter().map(|node| missed(node)));
    proof.kept.extend(world.kept());
    drop(world);
    let store = ledger
        .into_store()
        .ok_or_else(|| Error::new(ErrorKind::Internal, "close the journal").because("it is still in use"))?;
    proof.spending = store.state().spending(jiff::Timestamp::now());
    lift(store.folder()).await?;
    Ended::forget(&settings.paths, &spec.name);
    store.remove()?;
    let _ = fs_err::remove_dir(settings.paths.clusters());
    let _ = fs_err::remove_dir(&settings.paths.runtime);
    Ok(proof)
}
