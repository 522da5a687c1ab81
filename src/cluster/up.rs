//! `up`: from nothing, or from whatever exists, to a verified cluster.

use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::access::access_of;
use super::errors::{again, go_on};
use super::forecast::forecast;
use super::limits::PriceAndLimits;
use super::machines::remote;
use super::open::{kind_of, open};
use super::options::UpOptions;
use super::outcome::{UpOutcome, UpReport, Verified};
use super::pin::{Pins, pinned};
use super::serve::{bring_of_spec, check_secrets_of_spec};
use super::settings::Settings;
use super::sites::at_its_site;
use super::substrate::{Look, Opening, Remark, Resolution, Substrate};
use super::which_machine::{self, refuse_other_machine};
use crate::agent::ScheduledUp;
use crate::agent::end::End;
use crate::engine::{Ledger, Pipeline};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Endpoint;
use crate::name::Key;
use crate::plan::{Action, Change, Goal, HostAction, NodeChange, Observed, Plan, Price, reconcile};
use crate::provider::{ProviderKind, Start};
use crate::ray::Access;
use crate::spec::{Loaded, Spec};
use crate::state::{ClusterState, Item, ItemKind, Lock, Notes, Record, Store};
use crate::util::human;

/// How long `up` shows the result of a check that is slow again, while nothing was restarted; `verify` never does.
const RECENT: Duration = Duration::from_secs(600);

/// Hosts that start within this time are waited for right away: handing the wait to an agent takes longer.
const SOON: SignedDuration = SignedDuration::from_secs(10);

/// What was found before anything permanent is written.
#[expect(clippy::large_enum_variant, reason = "it is made once, and taken apart at once")]
enum Preliminary {
    Later(Start),
    /// Its last minutes have begun, and all that is missing are workers.
    Ending,
    Now(Resolution, Observed, Goal),
}

/// Brings a cluster to what its spec says, and verifies it.
pub async fn up(settings: &Settings, loaded: &Loaded, options: &UpOptions) -> Result<UpOutcome> {
    let name = &loaded.spec.name;
    let _lock = Lock::take(&settings.paths, name, "up")?;
    let known = Store::open(&settings.paths, name)?;
    if let Some(known) = &known {
        refuse_other_machine(&settings.paths, known.state(), "bring up")?;
        same_kind(known.state(), &loaded.spec)?;
        if !options.new_spec {
            same_file(known.state(), options.path.as_deref())?;
        }
    }
    let pins = if options.update_files { Pins::Update } else { Pins::Keep };
    let state = known.as_ref().map(Store::state);
    let loaded = pinned(loaded, state.and_then(|state| state.spec.as_ref()), pins).await?;
    let its_site = at_its_site(settings, &loaded, state);
    let (loaded, notes) = settings.cancel.unless_pressed("find the cluster's site", its_site).await?;
    let loaded = &loaded;
    notes.iter().for_each(|note| settings.events.note(note));
    let is_new = known.is_none();
    let store = match known {
        Some(store) => store,
        None => Store::create(&settings.paths, &settings.scope(name), Timestamp::now())?,
    };
    let (before, ledger) = (store.state().clone(), Ledger::new(store));
    let price_and_limits = PriceAndLimits { settings, loaded, options, known: &before };
    let begun = begin(&price_and_limits, &ledger).await;
    let (substrate, resolution, observed, goal) =
        match begun {
            Ok((substrate, Preliminary::Now(resolution, observed, goal))) => (substrate, resolution, observed, goal),
            early => {
                if is_new && let Some(store) = ledger.into_store() {
                    store.remove()?;
                    let _ = fs_err::remove_dir(settings.paths.clusters());
                }
                return match early {
                    Ok((_, Preliminary::Later(start))) => Ok(UpOutcome::Later(start)),
                    Ok((substrate, Preliminary::Ending)) => {
                        let folder = settings.paths.cluster(name);
                        let report = report(substrate.as_ref(), &before, &folder, 0, Verified::default());
                        Ok(UpOutcome::Ready(UpReport { is_ending: true, ..report }))
                    }
                    Ok((_, Preliminary::Now(..))) => Err(Error::new(ErrorKind::Internal, "begin the plan")),
                    Err(error) if is_new && error.kind() == ErrorKind::Capacity => Err(error
                        .hint(format!("{}   # retries until there is capacity", again(options, ErrorKind::Capacity)))),
                    Err(error) if is_new => Err(error),
                    Err(error) => Err(go_on(error, settings, options, name)),
                };
            }
        };
    let spec = &loaded.spec;
    if before.spec.as_ref() != Some(spec) || before.spec_path != options.path {
        ledger.write(Record::SpecTaken { spec: Box::new(spec.clone()), path: options.path.clone() })?;
    }
    let (folder, start) = (ledger.folder(), later(&resolution));
    price_and_limits.set_limits(&folder, start.as_ref().map(|start| start.at)).await?;
    let says = |spec: &Spec| (spec.end.clone(), spec.idle.clone());
    if before.spec.as_ref().map(says) != Some(says(spec)) {
        forecast(spec, price_and_limits.end(resolution.end)?).iter().for_each(|line| settings.events.note(line));
    }
    if let Some(scheduled_up) = start.and_then(|start| ScheduledUp::this_process(start.at, &start.what)) {
        scheduled_up.write(&folder)?;
    }
    let result = async {
        let pipeline = pipeline(substrate.as_ref(), &ledger, settings);
        let operations = substrate.carry_out(&pipeline, loaded, resolution.offers, observed, goal).await?;
        let verified = substrate.verify(&ledger, Some(&before));
        let mut verified = settings.cancel.unless_pressed("check the cluster", verified).await?;
        let known = ledger.state();
        let applications = bring_of_spec(settings, &known, &folder, spec);
        let applications = settings.cancel.unless_pressed("deploy the applications", applications).await?;
        verified.passed += applications.passed;
        Ok::<_, Error>((operations + applications.changed, verified))
    };
    let result = result.await;
    ScheduledUp::forget(&folder);
    // In any case compact the journal, so that the next command reads one file.
    let kept = ledger.compact();
    let (operations, Verified { passed: checks, gpus }) =
        result.map_err(|error: Error| go_on(if_time_is_over(error, &ledger.state()), settings, options, name))?;
    kept?;
    // Adds the names of the nodes to the file for `ssh -F`.
    let _ = remote(&settings.paths, &ledger.state(), &settings.context()).await;
    // Last: the record promises that everything else is in place.
    if !substrate.is_ready_since(ledger.state().ready_since) {
        ledger.write(Record::ClusterReady)?;
    }
    Ok(UpOutcome::Ready(report(
        substrate.as_ref(),
        &ledger.state(),
        &folder,
        operations,
        Verified { passed: checks, gpus },
    )))
}

/// The report on a cluster that runs.
fn report(
    substrate: &dyn Substrate,
    known: &ClusterState,
    folder: &Path,
    operations: usize,
    verified: Verified,
) -> UpReport {
    let is_here = known.is_here();
    let endpoints = match access_of(known, folder).filter(|_| is_here) {
        Some(access) => endpoints_here(&access),
        None => substrate.endpoints(known),
    };
    let (spending, Verified { passed: checks, gpus }) = (known.spending(Timestamp::now()), verified);
    UpReport { operations, checks, gpus, endpoints, is_here, spending, is_ending: false }
}

/// The pipeline of a command on a cluster.
pub(super) fn pipeline<'a>(substrate: &'a dyn Substrate, ledger: &'a Ledger, settings: &'a Settings) -> Pipeline<'a> {
    Pipeline { world: substrate, replan: substrate, ledger, events: &settings.events, cancel: &settings.cancel }
}

/// Opens the cluster, and finds what is to be done. A missing host, or one that cannot do what the spec asks, is found
/// here.
async fn begin(price_and_limits: &PriceAndLimits<'_>, ledger: &Ledger) -> Result<(Box<dyn Substrate>, Preliminary)> {
    let PriceAndLimits { settings, loaded, options, known } = *price_and_limits;
    let (spec, folder) = (&loaded.spec, ledger.folder());
    check_secrets_of_spec(settings, spec)?;
    let mut substrate = open(&Opening {
        settings,
        spec,
        loaded: Some(loaded),
        up: Some(options),
        known,
        connections: &folder,
        credentials: &folder,
        look: Look::Checks { at_most: RECENT },
    })?;
    remarks_on_spec(spec)?.iter().for_each(|remark| remark.report(&settings.events));
    if crate::providers::find(spec.provider.name())?.capability().is_here {
        which_machine::record(&settings.paths, &spec.name)?;
    }
    let resolution = substrate.resolve(Some(options)).await?;
    let start = later(&resolution);
    if let Some(start) = start.clone().filter(|_| !options.scheduled_up) {
        price_and_limits.approve_price(Price::of(&substrate.requests()?)).await?;
        return Ok((substrate, Preliminary::Later(start)));
    }
    let observed = pipeline(substrate.as_ref(), ledger, settings).observe_consistent().await?;
    substrate.report_restarts(known);
    let goal = substrate.goal(loaded, &resolution.offers, known, &observed).await?;
    price_and_limits.check(&goal, start.map(|start| start.at))?;
    let plan = reconcile(&goal, known, &observed).plan;
    price_and_limits.approve(&plan).await?;
    substrate.remarks(known, &plan).await?.iter().for_each(|remark| remark.report(&settings.events));
    if let Some(remark) = near_end(spec, price_and_limits.end(resolution.end)?) {
        remark.report(&settings.events);
        let is_same = known.ready_since.is_some() && known.spec.as_ref() == Some(spec);
        if is_same && lacks_only_workers(&plan) {
            return Ok((substrate, Preliminary::Ending));
        }
    }
    Ok((substrate, Preliminary::Now(resolution, observed, goal)))
}

/// What a spec says that its user may not expect.
pub(super) fn remarks_on_spec(spec: &Spec) -> Result<Vec<Remark>> {
    let each = match kind_of(spec)? {
        ProviderKind::Host => "host",
        ProviderKind::Platform => "node",
    };
    let warnings = spec.worker_notes().into_iter().map(Remark::Warning);
    let notes = spec.mount_notes().into_iter().chain(spec.data_notes(each)).map(Remark::Note);
    Ok(warnings.chain(notes).collect())
}

/// What is said where the last minutes of a cluster have begun: what runs there then is asked to save, and its workers take
/// nothing new.
fn near_end(spec: &Spec, end: Option<End>) -> Option<Remark> {
    let (of_spec, end) = (spec.end.as_ref()?, end?);
    let now = Timestamp::now();
    (end.before(of_spec.warning()) <= now && now < end.at).then(|| {
        Remark::Warning(format!(
            "its end is near: {} {}; jobs are asked to save, and workers take nothing new; `gpucl keep -c {} 2h` moves it",
            end.why,
            human::in_time(end.at),
            spec.name
        ))
    })
}

/// Whether a plan does nothing but start workers: near the end they are drained, and would be again.
fn lacks_only_workers(plan: &Plan) -> bool {
    let is_worker = |change: &NodeChange| change.node.is_node() && change.node != Key::head();
    plan.operations.iter().all(|operation| match &operation.action {
        Action::Host(HostAction::Deploy { nodes, .. }) => {
            nodes.iter().filter(|change| change.change != Change::Keep).all(is_worker)
        }
        _ => false,
    })
}

/// When the hosts become available, if that is later than [`SOON`].
fn later(resolution: &Resolution) -> Option<Start> {
    resolution.start.clone().filter(|start| start.at.duration_since(Timestamp::now()) > SOON)
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

/// The endpoints of a cluster on this machine.
fn endpoints_here(access: &Access) -> Vec<Endpoint> {
    let endpoint = |name: &str, url: &str| Endpoint { name: name.to_owned(), url: url.to_owned() };
    vec![endpoint("dashboard", &access.dashboard_url), endpoint("client", &access.client_address)]
}

/// Refuses a spec from another file if a cluster of that name is running.
fn same_file(known: &ClusterState, path: Option<&str>) -> Result<()> {
    let is_running = |item: &Item| item.kind == ItemKind::Project || matches!(item.notes, Notes::Platform(_));
    let running = || known.items.values().any(is_running);
    match (&known.spec_path, path) {
        (Some(before), Some(now)) if before != now && running() => {
            Err(Error::new(ErrorKind::Usage, format!("bring up the cluster {} from {now}", known.name))
                .because(format!("a cluster of that name runs from another spec: {before}"))
                .hint(format!(
                    "give one of them another `name:`, or replace the running one: gpucl up {now} --new-spec"
                )))
        }
        _ => Ok(()),
    }
}

/// Refuses to change the provider or runtime of an existing cluster: the new one would not see what the old one made.
fn same_kind(known: &ClusterState, spec: &Spec) -> Result<()> {
    let Some(before) = known.spec.as_ref().filter(|_| !known.items.is_empty()) else { return Ok(()) };
    let of = |spec: &Spec| (spec.provider.name().to_owned(), spec.runtime.name());
    if of(before) == of(spec) {
        return Ok(());
    }
    let ((provider, runtime), (new_provider, new_runtime)) = (of(before), of(spec));
    Err(Error::new(ErrorKind::Usage, format!("bring up the cluster {}", known.name))
        .because(format!(
            "it has the provider `{provider}` and the runtime `{runtime}`, but the spec says `{new_provider}` and \
             `{new_runtime}`"
        ))
        .hint(format!("gpucl down -c {}   # then up again; or give the new one another `name:`", known.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Operation;

    #[test]
    fn near_the_end_only_what_is_drained_stays_away() {
        let plan = |changes: &[(Key, Change)]| {
            let nodes = changes.iter().map(|(node, change)| NodeChange {
                node: node.clone(),
                change: *change,
                cause: String::new(),
            });
            let action = Action::Host(HostAction::Deploy { host: Key::host(0), nodes: nodes.collect() });
            Plan {
                operations: vec![Operation {
                    id: 1,
                    key: Key::project(0),
                    action,
                    cause: String::new(),
                    after: Vec::new(),
                }],
            }
        };
        let lacks = |changes: &[(Key, Change)]| lacks_only_workers(&plan(changes));
        assert!(lacks(&[(Key::head(), Change::Keep), (Key::worker(0), Change::Start)]));
        assert!(!lacks(&[(Key::head(), Change::Start)]), "a head that is gone is started: jobs may still save there");
        assert!(!lacks(&[(Key::guard(), Change::Restart)]), "another guard saves something else");
        assert!(lacks_only_workers(&Plan::default()));
    }

    /// A cluster on a platform has its data on each node, and says so as one on hosts does.
    #[test]
    fn what_is_filled_is_said_for_every_kind_of_provider() {
        let data = "data: [{name: set, from: {command: make-it}, check: test -s a.txt}]";
        let remarks = |provider: &str| {
            let text = format!("name: demo\nprovider: {provider}\nray: {{workers: {{count: 1}}}}\n{data}\n");
            let loaded = crate::spec::parse("cluster.yaml", &text, &crate::providers::find).unwrap();
            remarks_on_spec(&loaded.spec).unwrap().into_iter().map(Remark::into_text).collect::<Vec<_>>()
        };
        let [on_nodes] = remarks("kubernetes").try_into().unwrap();
        assert!(on_nodes.starts_with("$GPUCL_DATA/set is filled once on each node, "), "{on_nodes}");
        let [on_hosts] = remarks("local").try_into().unwrap();
        assert!(on_hosts.starts_with("$GPUCL_DATA/set is filled once on each host, "), "{on_hosts}");
    }
}
