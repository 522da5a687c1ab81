//! `up` and `plan` of a cluster on hosts.

use jiff::{SignedDuration, Timestamp};

use super::acquire::Found;
use super::capacity::{CapacityReplan, CapacityWait, carry_to};
use super::open::{secrets, world};
use super::status::access_of;
use super::verify::judge;
use super::world::Purpose;
use crate::agent::ScheduledUp;
use crate::cluster::errors::{again, go_on};
use crate::cluster::limits::About;
use crate::cluster::local_files;
use crate::cluster::machine;
use crate::cluster::options::UpOptions;
use crate::cluster::outcome::{Planned, UpOutcome, UpReport, Verified};
use crate::cluster::settings::Settings;
use crate::cluster::settings::settings_fit;
use crate::engine::{Ledger, Pipeline, World as _};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Endpoint;
use crate::name::Key;
use crate::plan::{Goal, Observed, Price, reconcile};
use crate::provider::Start;
use crate::ray::Access;
use crate::runtime::project::{self};
use crate::spec::{Loaded, Spec};
use crate::state::{ClusterState, Record, Store};
use crate::util::human;

/// What the preliminary inspection found, before anything permanent is written.
#[expect(clippy::large_enum_variant, reason = "it is made once, and taken apart at once")]
enum Preliminary {
    Later(Start),
    Now(Found, Observed, Goal, Said),
}

/// Whether what limits the hosts was reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Yes,
    NotYet,
}

/// Hosts that start within this time are waited for right away: handing the wait to an agent takes longer.
const SOON: SignedDuration = SignedDuration::from_secs(10);

/// Brings the cluster to what its spec says, and verifies it.
pub(super) async fn up(
    settings: &Settings,
    loaded: &Loaded,
    options: &UpOptions,
    known: Option<Store>,
) -> Result<UpOutcome> {
    settings_fit(settings, loaded)?;
    let spec = &loaded.spec;
    let name = &spec.name;
    let scope = settings.scope(name);
    spec.worker_notes().into_iter().for_each(|note| settings.events.warn(note));
    spec.mount_notes().into_iter().for_each(|note| settings.events.note(note));
    spec.data_notes().into_iter().for_each(|note| settings.events.note(note));
    let files = local_files::read(spec, &settings.events)?;
    // A missing host, or one that cannot do what the spec asks, is found before anything permanent is written.
    let is_new = known.is_none();
    let store = match known {
        Some(store) => store,
        None => Store::create(&settings.paths, &scope, jiff::Timestamp::now())?,
    };
    if crate::providers::find(spec.provider.name())?.capability().is_here {
        machine::record(&settings.paths, name)?;
    }
    let files = Some(files);
    let world = world(settings, spec, store.folder(), secrets(spec, store.folder())?, Purpose::Check, files)?;
    let poll = world.config.provider.capability().poll;
    let (wait, events) = (options.wait_capacity, &settings.events);
    let wait = CapacityWait::new(wait, spec.capacity.as_ref(), poll, events, &settings.cancel);
    let replan = CapacityReplan { world: &world, wait };
    let before = store.state().clone();
    let ledger = Ledger::new(store);
    let pipeline = Pipeline {
        world: &world,
        replan: &replan,
        ledger: &ledger,
        events: &settings.events,
        cancel: &settings.cancel,
    };
    let about = About { settings, loaded, options, known: &before };
    let preliminary = async {
        let found = replan.resolve().await?;
        let start = later(&found);
        if let Some(start) = start.clone().filter(|_| !options.scheduled_up) {
            about.approve_price(Price::of(&world.requests()?)).await?;
            return Ok::<_, Error>(Preliminary::Later(start));
        }
        let observed = pipeline.observe_consistent().await?;
        world.report_restarts(&before);
        world.refuse_taken_port().await?;
        let goal = world.goal(loaded, &found.offers, &before, &observed)?;
        about.check(&goal, start.map(|start| start.at))?;
        about.approve(&reconcile(&goal, &before, &observed).plan).await?;
        let said = if world.report_capacity(&before) { Said::Yes } else { Said::NotYet };
        Ok(Preliminary::Now(found, observed, goal, said))
    };
    let (found, observed, goal, said) =
        match preliminary.await {
            Ok(Preliminary::Now(found, observed, goal, said)) => (found, observed, goal, said),
            early => {
                if is_new && let Some(store) = ledger.into_store() {
                    store.remove()?;
                    let _ = fs_err::remove_dir(settings.paths.clusters());
                }
                return match early {
                    Err(error) if is_new && error.kind() == ErrorKind::Capacity => Err(error
                        .hint(format!("{}   # retries until there is capacity", again(options, ErrorKind::Capacity)))),
                    Err(error) if is_new => Err(error),
                    Err(error) => Err(go_on(error, settings, options, name)),
                    Ok(Preliminary::Later(start)) => Ok(UpOutcome::Later(start)),
                    Ok(Preliminary::Now(..)) => Err(Error::new(ErrorKind::Internal, "begin the plan")),
                };
            }
        };
    if before.spec.as_ref() != Some(spec) || before.spec_path != options.path {
        ledger.write(Record::SpecTaken { spec: Box::new(spec.clone()), path: options.path.clone() })?;
    }
    let folder = ledger.folder();
    about.set_limits(&folder, later(&found).map(|start| start.at)).await?;
    if let Some(scheduled_up) = later(&found).and_then(|start| ScheduledUp::this_process(start.at, &start.what)) {
        scheduled_up.write(&folder)?;
    }
    let result = bring_up(&pipeline, &replan, loaded, (found, observed, goal), said).await;
    ScheduledUp::forget(&folder);
    // In any case compact the journal, so that the next command reads one file.
    let kept = ledger.compact();
    let (operations, verified) =
        result.map_err(|error: Error| go_on(if_time_is_over(error, &ledger.state()), settings, options, name))?;
    kept?;
    // Adds the names of the nodes to the file for `ssh -F`.
    let _ = crate::cluster::connections::connections(&settings.paths, &ledger.state(), settings.context()).await;
    // Last: the record promises that everything else is in place.
    if !world.is_ready_since(ledger.state().ready_since) {
        ledger.write(Record::ClusterReady)?;
    }
    let Verified { passed: checks, gpus } = verified;
    let (known, is_here) = (ledger.state(), ledger.state().is_here());
    let endpoints = match access_of(&known, &folder).filter(|_| is_here) {
        Some(access) => endpoints_here(&access),
        None => endpoints(spec, &known),
    };
    let spending = known.spending(Timestamp::now());
    Ok(UpOutcome::Ready(UpReport { operations, checks, gpus, endpoints, is_here, spending }))
}

/// When the hosts become available, if that is later than [`SOON`].
fn later(found: &Found) -> Option<Start> {
    found.start.clone().filter(|start| start.at.duration_since(Timestamp::now()) > SOON)
}

/// Carries out the plan and verifies the result.
async fn bring_up(
    pipeline: &Pipeline<'_>,
    replan: &CapacityReplan<'_>,
    loaded: &Loaded,
    planned: (Found, Observed, Goal),
    said: Said,
) -> Result<(usize, Verified)> {
    let world = replan.world;
    let operations = carry_to(pipeline, replan, loaded, planned).await?;
    world.note_promises(pipeline.ledger)?;
    let known = pipeline.ledger.state();
    // Of hosts that did not exist before.
    if said == Said::NotYet {
        world.report_capacity(&known);
    }
    let verified =
        world.config.cancel.unless_pressed("check the cluster", judge(world, &known, pipeline.events)).await?;
    world.note_boots(pipeline.ledger)?;
    Ok((operations, verified))
}

/// Adds a cause if the hosts' reservation has ended: that explains any failure.
fn if_time_is_over(error: Error, known: &ClusterState) -> Error {
    match known.ends().filter(|end| *end <= Timestamp::now()) {
        Some(end) => error
            .because(format!("the time that its hosts were reserved for ended at {}", human::local(end)))
            .hint("reserve them again, and bring the cluster up again"),
        None => error,
    }
}

/// Works out what `up` would do. Writes nothing but temporary connection files.
pub(super) async fn plan(settings: &Settings, loaded: &Loaded, known: Option<Store>) -> Result<Planned> {
    settings_fit(settings, loaded)?;
    let spec = &loaded.spec;
    let scope = settings.scope(&spec.name);
    let known = known.map_or_else(|| ClusterState::new(&scope, jiff::Timestamp::now()), |store| store.state().clone());
    let folder = tempfile::tempdir().map_err(|error| {
        Error::new(crate::error::ErrorKind::State, "make a folder for the connections to the hosts").caused_by(&error)
    })?;
    // Credentials are part of the digest: use the cluster's own if it has some.
    let own = settings.paths.cluster(&spec.name);
    let secrets = secrets(spec, if own.is_dir() { &own } else { folder.path() })?;
    let world = world(
        settings,
        spec,
        folder.path(),
        secrets,
        Purpose::Inspect,
        Some(local_files::read(spec, &settings.events)?),
    )?;
    let found = world.resolve().await?;
    let observed = world.observe(&known).await?;
    world.refuse_taken_port().await?;
    let goal = world.goal(loaded, &found.offers, &known, &observed)?;
    let about = About { settings, loaded, options: &UpOptions::default(), known: &known };
    about.check(&goal, found.start.as_ref().map(|start| start.at))?;
    let plan = reconcile(&goal, &known, &observed).plan;
    let mut notes = found.notes;
    if let Some(start) = found.start {
        notes.push(format!("{} begins at {}; `up` waits for it", start.what, human::local(start.at)));
    }
    notes.extend(world.corrected_ways(&known));
    notes.extend(spec.worker_notes());
    if let Some((limits, warnings)) = world.of_capacity(&known) {
        notes.extend(limits.into_iter().chain(warnings));
    }
    notes.extend(spec.mount_notes());
    notes.extend(spec.data_notes());
    notes.extend(what_is_lost(spec, found.end.or_else(|| known.ends())));
    Ok(Planned { affected_paths: world.affected_paths(&known, &plan)?, plan, notes })
}

/// A note on when data on the hosts' disks is lost, unless there is an external store.
fn what_is_lost(spec: &Spec, end: Option<Timestamp>) -> Option<String> {
    let has_store = spec.services.as_ref().is_some_and(|services| services.has_external_store());
    let end = end.filter(|_| !has_store)?;
    Some(format!(
        "what is on the hosts' disks is lost at {}; `services.object_store.external` keeps results outside the cluster",
        human::local(end)
    ))
}

/// The endpoints of a cluster on this machine.
fn endpoints_here(access: &Access) -> Vec<Endpoint> {
    let endpoint = |name: &str, url: &str| Endpoint { name: name.to_owned(), url: url.to_owned() };
    vec![endpoint("dashboard", &access.dashboard_url), endpoint("client", &access.client_address)]
}

/// The endpoints of remote pages while `gpucl dashboard` forwards them.
fn endpoints(spec: &Spec, known: &ClusterState) -> Vec<Endpoint> {
    let head = Key::host(0);
    let Some(ports) = known.host(&head).and_then(|host| host.ports.clone()) else { return Vec::new() };
    let there = project::of(spec.runtime).pages(spec, &head, &ports);
    let pages = known.pages().cloned().unwrap_or_default();
    pages
        .into_iter()
        .filter(|(name, _)| there.iter().any(|page| page.name == *name))
        .map(|(name, port)| Endpoint { name, url: format!("http://127.0.0.1:{port}") })
        .collect()
}
