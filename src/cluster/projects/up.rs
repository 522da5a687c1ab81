//! `up` and `plan` of a cluster of projects.

use std::sync::Arc;

use super::SshReach;
use super::down::forget_nothing;
use super::verify::judge;
use super::world::{ProjectWorld, ProjectWorldConfig};
use crate::cluster::up::go_on;
use crate::cluster::{Planned, Settings, UpOptions, UpReport, Verified};
use crate::engine::{Ledger, Pipeline, World as _};
use crate::error::{Error, Result};
use crate::event::Endpoint;
use crate::plan::{Action, Operation, reconcile};
use crate::runtime::compose::CleanOptions;
use crate::spec::{Loaded, Spec};
use crate::state::{ClusterState, Record, Store};

/// The world of a cluster of which the state is known.
pub(super) fn open_world(
    settings: &Settings,
    spec: &Spec,
    store: &Store,
    with_checks: bool,
    clean: CleanOptions,
) -> Result<ProjectWorld> {
    world(settings, spec, store.folder(), crate::secret::ensure_secrets(store.folder())?, with_checks, clean)
}

fn world(
    settings: &Settings,
    spec: &Spec,
    folder: &std::path::Path,
    secrets: crate::secret::Secrets,
    with_checks: bool,
    clean: CleanOptions,
) -> Result<ProjectWorld> {
    let reach = SshReach::new(folder.to_owned(), &settings.paths.runtime, &settings.events, &settings.cancel);
    Ok(ProjectWorld::new(ProjectWorldConfig {
        scope: settings.scope(&spec.name),
        spec: spec.clone(),
        provider: settings.provider(spec)?,
        reach: Arc::new(reach),
        library: settings.library.clone(),
        secrets,
        with_checks,
        clean,
        events: settings.events.clone(),
        cancel: settings.cancel.clone(),
    }))
}

/// Brings it up, or to what its spec says now, and verifies it.
pub(in crate::cluster) async fn up(
    settings: &Settings,
    loaded: &Loaded,
    options: &UpOptions,
    known: Option<Store>,
) -> Result<UpReport> {
    let spec = &loaded.spec;
    let name = &spec.name;
    let scope = settings.scope(name);
    // A host that is not there, or a promise that it cannot keep, is found before anything is written for good.
    let is_new = known.is_none();
    let store = match known {
        Some(store) => store,
        None => Store::create(&settings.paths, &scope, jiff::Timestamp::now())?,
    };
    let world = open_world(settings, spec, &store, true, forget_nothing())?;
    let before = store.state().clone();
    let ledger = Ledger::new(store);
    let pipeline = Pipeline { world: &world, ledger: &ledger, events: &settings.events, cancel: &settings.cancel };
    let planned = async {
        let offers = world.config.provider.offers().await?;
        let observed = pipeline.observe_settled().await?;
        let goal = world.goal(loaded, &offers, &before, &observed)?;
        Ok((observed, goal))
    };
    let (observed, goal) = match planned.await {
        Ok(planned) => planned,
        Err(error) => {
            if is_new && let Some(store) = ledger.into_store() {
                store.remove()?;
                return Err(error);
            }
            return Err(go_on(error, settings, options, name));
        }
    };
    if before.spec.as_ref() != Some(spec) || before.spec_path != options.path {
        ledger.write(Record::SpecTaken { spec: Box::new(spec.clone()), path: options.path.clone() })?;
    }
    let result = async {
        let plan = pipeline.settle_on(&goal, observed)?.plan;
        pipeline.execute(&plan).await.into_result()?;
        // Of several hosts each is looked at again once all are there: the head sees them all only then.
        let deploys = |operation: &Operation| matches!(operation.action, Action::Deploy { .. });
        if world.host_keys().len() > 1 && plan.operations.iter().any(deploys) {
            world.observe(&ledger.state()).await?;
        }
        let verified = judge(&world, &ledger.state(), &settings.events).await?;
        world.note_boots(&ledger)?;
        Ok((plan.operations.len(), verified))
    }
    .await;
    // Whatever came: what is known is put in order, so that the next command reads one file.
    let kept = ledger.compact();
    let (operations, verified) = result.map_err(|error: Error| go_on(error, settings, options, name))?;
    kept?;
    if ledger.state().ready_since.is_none() {
        ledger.write(Record::ClusterReady)?;
    }
    let Verified { passed: checks, gpus } = verified;
    // The file for `ssh -F` knows the nodes by their names from now on.
    let _ = crate::cluster::connections(&settings.paths, &ledger.state(), settings.context()).await;
    Ok(UpReport { operations, checks, gpus, endpoints: endpoints(&ledger.state()) })
}

/// What `up` would do. Reads, writes nothing but the way to the hosts.
pub(in crate::cluster) async fn plan(settings: &Settings, loaded: &Loaded, known: Option<Store>) -> Result<Planned> {
    let spec = &loaded.spec;
    let scope = settings.scope(&spec.name);
    let known = known.map_or_else(|| ClusterState::new(&scope, jiff::Timestamp::now()), |store| store.state().clone());
    let folder = tempfile::tempdir().map_err(|error| {
        Error::new(crate::error::ErrorKind::State, "make a folder for the way to the hosts").caused_by(&error)
    })?;
    // Credentials are part of the digest: those of the cluster where it has some.
    let own = settings.paths.cluster(&spec.name);
    let secrets = crate::secret::ensure_secrets(if own.is_dir() { &own } else { folder.path() })?;
    let world = world(settings, spec, folder.path(), secrets, false, forget_nothing())?;
    let offers = world.config.provider.offers().await?;
    let observed = world.observe(&known).await?;
    let goal = world.goal(loaded, &offers, &known, &observed)?;
    let plan = reconcile(&goal, &known, &observed).plan;
    Ok(Planned { touches: world.touches(&known, &plan)?, plan })
}

/// Where the pages are, once `gpucl dashboard` forwards them.
fn endpoints(known: &ClusterState) -> Vec<Endpoint> {
    let pages: crate::runtime::compose::Pages = known.note(&crate::name::Key::project(0), "pages").unwrap_or_default();
    pages
        .into_iter()
        .filter(|(name, _)| name != "client")
        .map(|(name, port)| Endpoint { name, url: format!("http://127.0.0.1:{port}") })
        .collect()
}
