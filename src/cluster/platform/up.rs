//! `up`, `plan` and `stop` of a cluster on a platform.

use jiff::Timestamp;

use super::consent;
use super::goal;
use super::preparation;
use super::verify::verify_cluster;
use super::world::ObjectWorld;
use crate::cluster::errors::go_on;
use crate::cluster::limits::About;
use crate::cluster::options::UpOptions;
use crate::cluster::outcome::{Planned, UpOutcome, UpReport, Verified};
use crate::cluster::pages::choose_pages;
use crate::cluster::settings::Settings;
use crate::engine::{Ledger, NothingElse, Pipeline, World as _};
use crate::error::{Error, Result};
use crate::event::Endpoint;
use crate::name::Key;
use crate::plan::{Action, Desired, Goal, reconcile};
use crate::provider::ResourceRequest;
use crate::provider::platform::ClusterRequest;
use crate::spec::{Loaded, Spec};
use crate::state::{ClusterState, Pages, PlatformNotes, Record, Store};

/// The pages that are forwarded from the head.
pub(super) const PAGES: [&str; 2] = ["dashboard", "client"];

/// The cluster that a spec asks for, with what its nodes have of this machine.
fn request(settings: &Settings, loaded: &Loaded) -> Result<ClusterRequest> {
    let mut request = goal::request(loaded, false)?;
    request.preparation = preparation::with_files(&loaded.spec, &settings.library, &settings.events)?;
    Ok(request)
}

/// Adds what the platform has for it: its Prometheus.
async fn completed(world: &ObjectWorld, spec: &Spec, request: &mut ClusterRequest) -> Result<()> {
    if spec.has_existing_prometheus() {
        request.prometheus = Some(world.pods.platform()?.prometheus().await?);
    }
    Ok(())
}

/// The objects that a request asks for, in order.
fn objects(world: &mut ObjectWorld, request: &ClusterRequest, pages: Pages) -> Result<Vec<ResourceRequest>> {
    let objects = world.pods.platform()?.objects(world.pods.scope(), request)?;
    let groups = std::iter::once(&request.head).chain(&request.workers).cloned().collect();
    let notes = PlatformNotes { groups, stopped: request.stopped, pages };
    world.runs = objects.last().map(|object| (object.key.clone(), notes));
    Ok(objects)
}

fn goal_of(objects: Vec<ResourceRequest>) -> Goal {
    Goal::Up(Desired { resources: objects, ..Desired::default() })
}

/// Brings the cluster to what its spec says, and verifies it.
pub(super) async fn up(
    settings: &Settings,
    loaded: &Loaded,
    options: &UpOptions,
    known: Option<Store>,
) -> Result<UpOutcome> {
    let spec = &loaded.spec;
    let mut request = request(settings, loaded)?;
    let mut world = ObjectWorld::open(settings, spec)?;
    let site = world.pods.platform()?.site().await?;
    consent::ask(settings, options, &site).await?;
    completed(&world, spec, &mut request).await?;
    for note in world.pods.platform()?.check(world.pods.scope(), &request).await? {
        settings.events.note(note);
    }
    let is_new = known.is_none();
    let store = match known {
        Some(store) => store,
        None => Store::create(&settings.paths, world.pods.scope(), Timestamp::now())?,
    };
    crate::secret::ensure_ray_token(store.folder())?;
    let before = store.state().clone();
    let pages = before.pages().cloned().map_or_else(|| choose_pages(&PAGES), Ok)?;
    let objects = objects(&mut world, &request, pages.clone())?;
    let (ledger, goal) = (Ledger::new(store), goal_of(objects));
    let pipeline = Pipeline {
        world: &world,
        replan: &NothingElse,
        ledger: &ledger,
        events: &settings.events,
        cancel: &settings.cancel,
    };
    let about = About { settings, loaded, options, known: &before };
    let preliminary = async {
        let observed = pipeline.observe_consistent().await?;
        about.check(&goal, None)?;
        let plan = reconcile(&goal, &before, &observed).plan;
        about.approve(&plan).await?;
        for line in consequences(&world, &plan).await? {
            settings.events.note(line);
        }
        Ok::<_, Error>(observed)
    };
    let observed = match preliminary.await {
        Ok(observed) => observed,
        Err(error) => {
            if is_new && let Some(store) = ledger.into_store() {
                store.remove()?;
                let _ = fs_err::remove_dir(settings.paths.clusters());
                return Err(error);
            }
            return Err(go_on(error, settings, options, &spec.name));
        }
    };
    if before.spec.as_ref() != Some(spec) || before.spec_path != options.path {
        ledger.write(Record::SpecTaken { spec: Box::new(spec.clone()), path: options.path.clone() })?;
    }
    let folder = ledger.folder();
    about.set_limits(&folder, None).await?;
    let result = async {
        let planned = pipeline.plan_for(&goal, observed)?;
        let operations = planned.plan.operations.len();
        pipeline.execute(&planned.plan).await.into_result()?;
        // What was found by its tag after a crash has no notes yet.
        if let Some((key, notes)) = &world.runs {
            ledger.note_platform(key, notes.clone())?;
        }
        let (preparation, is_first) = (request.preparation.as_ref(), before.ready_since.is_none());
        let verified = verify_cluster(&world, spec, &folder, &settings.events, preparation, is_first);
        let verified = settings.cancel.unless_pressed("check the cluster", verified);
        let (verified, shown) = tokio::join!(verified, show_dashboards(&world, &request, before.spec.as_ref()));
        if let Err(error) = shown {
            settings.events.note(format!("warning: failed to {error}"));
        }
        Ok::<_, Error>((operations, verified?))
    };
    let result = result.await;
    let kept = ledger.compact();
    let (operations, Verified { passed: checks, gpus }) =
        result.map_err(|error| go_on(error, settings, options, &spec.name))?;
    kept?;
    if ledger.state().ready_since.is_none() {
        ledger.write(Record::ClusterReady)?;
    }
    let spending = ledger.state().spending(Timestamp::now());
    Ok(UpOutcome::Ready(UpReport { operations, checks, gpus, endpoints: endpoints(&pages), is_here: false, spending }))
}

/// Shows Ray's dashboards in the Grafana beside the platform's Prometheus; or no more, where the spec has none any more.
async fn show_dashboards(world: &ObjectWorld, request: &ClusterRequest, before: Option<&Spec>) -> Result<()> {
    let is_wanted = request.prometheus.is_some();
    if !is_wanted && !before.is_some_and(Spec::has_existing_prometheus) {
        return Ok(());
    }
    world.pods.platform()?.show_dashboards(world.pods.scope(), is_wanted.then_some(&request.ray_version)).await
}

/// The addresses of the pages while `gpucl dashboard` forwards them.
fn endpoints(pages: &Pages) -> Vec<Endpoint> {
    let shown = pages.iter().filter(|(name, _)| *name == "dashboard");
    shown.map(|(name, port)| Endpoint { name: name.clone(), url: format!("http://127.0.0.1:{port}") }).collect()
}

/// What the updates of a plan do to nodes that run.
async fn consequences(world: &ObjectWorld, plan: &crate::plan::Plan) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for operation in &plan.operations {
        if let Action::Update { request, id } = &operation.action {
            let tag = world.pods.scope().tag(&operation.key);
            lines.extend(world.pods.platform()?.consequences(&tag, request, id).await?);
        }
    }
    Ok(lines)
}

/// Works out what `up` would do. Writes nothing.
pub(super) async fn plan(settings: &Settings, loaded: &Loaded, known: Option<Store>) -> Result<Planned> {
    let spec = &loaded.spec;
    let mut request = request(settings, loaded)?;
    let mut world = ObjectWorld::open(settings, spec)?;
    completed(&world, spec, &mut request).await?;
    let known =
        known.map_or_else(|| ClusterState::new(world.pods.scope(), Timestamp::now()), |store| store.state().clone());
    let mut notes = world.pods.platform()?.check(world.pods.scope(), &request).await?;
    let goal = goal_of(objects(&mut world, &request, Pages::new())?);
    let observed = world.observe(&known).await?;
    About { settings, loaded, options: &UpOptions::default(), known: &known }.check(&goal, None)?;
    let plan = reconcile(&goal, &known, &observed).plan;
    notes.extend(consequences(&world, &plan).await?);
    Ok(Planned { affected_paths: Vec::new(), plan, notes })
}

/// The objects of a spec as documents for another tool, without secrets.
pub(in crate::cluster) async fn manifest(settings: &Settings, loaded: &Loaded) -> Result<String> {
    let mut request = request(settings, loaded)?;
    let world = ObjectWorld::open(settings, &loaded.spec)?;
    completed(&world, &loaded.spec, &mut request).await?;
    world.pods.platform()?.manifest(world.pods.scope(), &request)
}

/// Ends all nodes, and removes what serves them; the object that runs them stays.
pub(super) async fn stop(settings: &Settings, spec: &Spec, store: Store) -> Result<Vec<String>> {
    let mut world = ObjectWorld::open(settings, spec)?;
    let pages = store.state().pages().cloned().unwrap_or_default();
    let objects = objects(&mut world, &goal::of_spec(spec, true), pages)?;
    let ledger = Ledger::new(store);
    let pipeline = Pipeline {
        world: &world,
        replan: &NothingElse,
        ledger: &ledger,
        events: &settings.events,
        cancel: &settings.cancel,
    };
    // A cluster that is gone is not made for the sake of being stopped.
    let observed = pipeline.observe_consistent().await?;
    let there: Vec<Key> = observed.resources.iter().map(|found| found.key.clone()).collect();
    // The last one runs the nodes, and stays. The others serve nodes: they go, and with them the secrets of jobs.
    let objects = objects.into_iter().next_back().filter(|object| there.contains(&object.key)).into_iter().collect();
    let planned = pipeline.plan_for(&goal_of(objects), observed)?;
    let result = pipeline.execute(&planned.plan).await.into_result();
    let kept = ledger.compact();
    result.map_err(|error| error.hint(format!("gpucl stop -c {}   # goes on from here", spec.name)))?;
    kept?;
    let resources = planned.observed.resources.iter();
    Ok(resources.map(|found| format!("{} {}", found.kind.0, found.key.display_name())).collect())
}
