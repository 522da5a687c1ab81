//! `up` of a cluster on this machine.

use super::{checks, desired_of};
use crate::agent::Request;
use crate::cluster::down::say_if_restarted;
use crate::cluster::limits::About;
use crate::cluster::up::go_on;
use crate::cluster::{Opened, Settings, UpOptions, UpReport};
use crate::engine::Ledger;
use crate::error::{Error, Result};
use crate::plan::{Goal, Price};
use crate::runtime::native;
use crate::spec::Loaded;
use crate::state::{ClusterState, Record, Store};

/// Brings it up, or to what its spec says now, and verifies it.
pub(in crate::cluster) async fn up(
    settings: &Settings,
    loaded: &Loaded,
    options: &UpOptions,
    known: Option<Store>,
) -> Result<UpReport> {
    let (spec, now) = (&loaded.spec, jiff::Timestamp::now());
    let name = &spec.name;
    let scope = settings.scope(name);
    // All that can be refused is refused before anything is written.
    let provider = settings.provider(spec)?;
    let nothing = secrecy::SecretString::from(String::new());
    let trial = native::preparation(spec, &settings.library, &settings.paths.cache, &nothing)?;
    let trial = desired_of(loaded, &scope, provider.as_ref(), &trial).await?;
    if let Some(port) = trial.nodes.first().and_then(|head| head.dashboard_port) {
        native::refuse_taken(&scope, port)?;
    }

    let before = known.as_ref().map_or_else(|| ClusterState::new(&scope, now), |store| store.state().clone());
    let about = About { settings, loaded, options, known: &before };
    let missing = trial.resources.iter().filter(|request| !before.items.contains_key(&request.key));
    let price = Price::of(missing);
    about.check(&Goal::Up(trial), None)?;
    about.approve_price(price).await?;

    let mut store = match known {
        Some(store) => store,
        None => Store::create(&settings.paths, &scope, now)?,
    };
    let token = crate::secret::ensure_ray_token(store.folder())?;
    let stage = native::preparation(spec, &settings.library, &settings.paths.cache, &token)?;
    let desired = desired_of(loaded, &scope, provider.as_ref(), &stage).await?;
    if store.state().spec.as_ref() != Some(spec) || store.state().spec_path != options.path {
        store.write(Record::SpecTaken { spec: Box::new(spec.clone()), path: options.path.clone() })?;
    }
    about.arm(store.folder(), None).await?;
    let opened = Opened { ledger: Ledger::new(store), world: settings.world(spec, provider, Some(stage)) };
    say_if_restarted(settings, &opened.ledger.state());
    let nodes = desired.nodes.clone();
    let result = async {
        let planned = opened.pipeline(settings).plan(&Goal::Up(desired)).await?;
        opened.pipeline(settings).execute(&planned.plan).await.into_result()?;
        let subject = checks::Subject::new(settings, &opened, spec, &nodes)?;
        checks::wait_ready(&subject, &settings.cancel).await?;
        let checks = checks::run(&subject).await?;
        Ok((planned.plan.operations.len(), checks, subject.access().clone()))
    }
    .await;
    // Whatever came: what is known is put in order, so that the next command reads one file.
    let kept = opened.ledger.compact();
    let (operations, checks, access) = result.map_err(|error: Error| go_on(error, settings, options, name))?;
    kept?;
    if opened.ledger.state().ready_since.is_none() {
        opened.ledger.write(Record::ClusterReady)?;
    }
    // From now on a worker that ends by itself is started again.
    let _ = opened.world.agent().ask(&Request::Supervise).await;
    let endpoints = checks::endpoints(&access);
    let spending = opened.ledger.state().spending(jiff::Timestamp::now());
    Ok(UpReport { operations, checks, gpus: Vec::new(), endpoints, spending })
}
