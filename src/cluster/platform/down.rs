//! `down` of a cluster on a platform.

use super::world::ObjectWorld;
use crate::agent::Ended;
use crate::agent::deadline::lift;
use crate::cluster::outcome::Proof;
use crate::cluster::settings::Settings;
use crate::engine::{Ledger, NothingElse, Pipeline};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::Spec;
use crate::state::Store;

/// Removes every object of the cluster, and its state.
pub(super) async fn down(settings: &Settings, spec: &Spec, store: Store) -> Result<Proof> {
    let world = ObjectWorld::open(settings, spec)?;
    let ledger = Ledger::new(store);
    let pipeline = Pipeline {
        world: &world,
        replan: &NothingElse,
        ledger: &ledger,
        events: &settings.events,
        cancel: &settings.cancel,
    };
    let first = match pipeline.remove_all().await {
        Ok(first) => first,
        Err(error) => {
            let _ = ledger.compact();
            return Err(error.hint(format!("gpucl down -c {}   # goes on from here", spec.name)));
        }
    };
    let members = world.pods.members().await?;
    if !members.is_empty() {
        let names = members.into_iter().map(|member| member.name).collect::<Vec<_>>();
        return Err(Error::new(ErrorKind::LeftBehind, "remove every node of the cluster")
            .because(format!("its objects are gone, but these are still there: {}", names.join(", ")))
            .hint(format!("gpucl down -c {}   # looks again", spec.name)));
    }
    let resources = first.observed.resources.iter();
    let removed = resources.map(|found| format!("{} {} ({})", found.kind.0, found.key, found.id)).collect();
    let seen = vec!["looked for its nodes again: there is none".to_owned(), Proof::at_provider(spec.provider.name())];
    drop(world);
    let store = ledger
        .into_store()
        .ok_or_else(|| Error::new(ErrorKind::Internal, "close the journal").because("it is still in use"))?;
    let spending = store.state().spending(jiff::Timestamp::now());
    lift(store.folder()).await?;
    Ended::forget(&settings.paths, &spec.name);
    store.remove()?;
    let _ = fs_err::remove_dir(settings.paths.clusters());
    let _ = fs_err::remove_dir(&settings.paths.runtime);
    Ok(Proof { removed, seen, spending, ..Proof::default() })
}
