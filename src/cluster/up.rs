//! `up`: from nothing, or from whatever there is, to a verified cluster.

use super::down::say_if_restarted;
use super::open::{desired_of, same_file};
use super::{Opened, Settings, checks};
use crate::agent::Request;
use crate::engine::Ledger;
use crate::error::{Error, LeftBehind, Result};
use crate::event::Endpoint;
use crate::plan::Goal;
use crate::ray::Access;
use crate::runtime::native;
use crate::spec::Loaded;
use crate::state::{Lock, Record, Store};

/// How `up` is asked for.
#[derive(Debug, Clone, Default)]
pub struct UpOptions {
    /// The file that the spec came from, absolute.
    pub path: Option<String>,
    /// Take this file as the cluster's spec, though another one is running.
    pub new_spec: bool,
}

/// What `up` came to.
#[derive(Debug)]
pub struct UpReport {
    /// How many operations it took; none when all was as it should be.
    pub operations: usize,
    /// How many checks passed.
    pub checks: usize,
    /// The ways in.
    pub access: Access,
    /// What answers now, and where.
    pub endpoints: Vec<Endpoint>,
}

/// Brings a cluster up, or to what its spec says now, and verifies it.
pub async fn up(settings: &Settings, loaded: &Loaded, options: &UpOptions) -> Result<UpReport> {
    let spec = &loaded.spec;
    let name = &spec.name;
    let scope = settings.scope(name);
    let _lock = Lock::take(&settings.paths, name, "up")?;
    let known = Store::open(&settings.paths, name)?;
    if let Some(known) = &known
        && !options.new_spec
    {
        let running = !native::observe_nodes(&scope).is_empty();
        same_file(known.state(), options.path.as_deref(), running)?;
    }
    // All that can be refused is refused before anything is written.
    let provider = settings.provider(spec)?;
    let nothing = secrecy::SecretString::from(String::new());
    let trial = native::preparation(spec, &settings.library, &settings.paths.cache, &nothing)?;
    let trial = desired_of(loaded, &scope, provider.as_ref(), &trial).await?;
    if let Some(port) = trial.nodes.first().and_then(|head| head.dashboard_port) {
        native::refuse_taken(&scope, port)?;
    }

    let mut store = match known {
        Some(store) => store,
        None => Store::create(&settings.paths, &scope, jiff::Timestamp::now())?,
    };
    let token = crate::secret::ensure_ray_token(store.folder())?;
    let stage = native::preparation(spec, &settings.library, &settings.paths.cache, &token)?;
    let desired = desired_of(loaded, &scope, provider.as_ref(), &stage).await?;
    if store.state().spec.as_ref() != Some(spec) || store.state().spec_path != options.path {
        store.write(Record::SpecTaken { spec: Box::new(spec.clone()), path: options.path.clone() })?;
    }
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
    Ok(UpReport { operations, checks, access, endpoints })
}

/// Says what there is now, how to go on, and how to get rid of it.
fn go_on(error: Error, settings: &Settings, options: &UpOptions, name: &crate::name::ClusterName) -> Error {
    let again = options.path.as_deref().map_or_else(|| "gpucl up".to_owned(), |path| format!("gpucl up {path}"));
    let held: Vec<String> = match Store::open(&settings.paths, name) {
        Ok(Some(store)) => store.state().items.keys().map(crate::name::Key::display_name).collect(),
        _ => Vec::new(),
    };
    let error = if held.is_empty() || *error.left_behind() != LeftBehind::Clear {
        error
    } else {
        error.left(LeftBehind::Remaining(held))
    };
    error.hint(format!("{again}   # goes on from here")).hint(format!("gpucl down -c {name}   # removes what is there"))
}
