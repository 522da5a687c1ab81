//! The guards on the hosts of a cluster: they are given its end, and asked how far they are. Both is one round trip.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;

use super::limits::has_limits;
use super::machines::{Guard, Machines, PodGuard};
use super::settings::Settings;
use super::which_machine::refuse_other_machine;
use crate::agent::end::End;
use crate::agent::given::GivenEnd;
use crate::agent::notice::EndedJobs;
use crate::agent::seen::{GuardState, GuardsReport, HostGuard};
use crate::engine::Ledger;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::{ClusterName, Key};
use crate::runtime::project::{GuardAsk, GuardInPod, guards};
use crate::state::{ClusterState, Lock, Store};

/// How long a guard may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(40);
/// How long a copy of everything may take.
const SAVES_WITHIN: Duration = Duration::from_secs(12 * 3600);
/// How long a provider may take to say when hosts end.
const PROVIDER_WITHIN: Duration = Duration::from_secs(40);

/// Looks at the end of a cluster: asks the provider for a moved one, gives the hosts what they do not know yet, and reads how
/// far their guards are. `None` if no guard of its runs.
///
/// # Errors
/// If the cluster is unknown, is on another machine, or its records cannot be written. A host that does not answer is in the
/// result.
pub async fn look_at_end(settings: &Settings, name: &ClusterName) -> Result<Option<GuardsReport>> {
    let Some(store) = Store::open(&settings.paths, name)? else { return Err(super::unknown(&settings.paths, name)) };
    refuse_other_machine(&settings.paths, store.state(), "look at the end of")?;
    let has_limits = store.state().running_spec().is_some_and(has_limits);
    // What fails here is known as it was: hosts can be looked at all the same.
    let looked = if has_limits { learn_of_moved_end(settings, name, &store).await } else { Ok(Found::Reserved) };
    let found = looked.unwrap_or_else(|error| {
        settings.events.warn(format!("the provider was not asked whether the end has moved: {error}"));
        Found::Reserved
    });
    let Some(store) = Store::open(&settings.paths, name)? else { return Ok(None) };
    let seen = tell(settings, store.state(), &settings.paths.cluster(name)).await?;
    if found == Found::Nothing {
        learn_of_early_end(settings, name, seen.as_ref())?;
    }
    Ok(seen)
}

/// Looks which jobs have ended, if the spec of the cluster has `notify`.
///
/// # Errors
/// If the cluster is unknown, its head does not answer, or the record cannot be written.
pub async fn look_at_jobs(settings: &Settings, name: &ClusterName) -> Result<()> {
    let Some(store) = Store::open(&settings.paths, name)? else { return Err(super::unknown(&settings.paths, name)) };
    let (known, folder) = (store.state(), settings.paths.cluster(name));
    let notifies = known.running_spec().is_some_and(|spec| spec.notify.is_some());
    let Some(token) = crate::secret::ray_token(&folder)?.filter(|_| notifies) else { return Ok(()) };
    let (access, environment) = (super::access(&settings.paths, known), settings.host_environment.clone());
    let look = async {
        let machines = Machines::of(&settings.paths, known, &settings.context(), environment, access).await?;
        Arc::new(machines).ray(known, token).await?.jobs().await
    };
    let late = |_| Error::new(ErrorKind::Timeout, "list the jobs").because("Ray did not answer in time");
    let jobs = tokio::time::timeout(ANSWERS_WITHIN, look).await.map_err(late)??;
    EndedJobs::record(&folder, &jobs)
}

/// Looks at the guards of a cluster. `None` if it has none.
///
/// # Errors
/// As [`look_at_end`], which asks the provider, too.
pub async fn look_at_guards(settings: &Settings, name: &ClusterName) -> Result<Option<GuardsReport>> {
    let Some(store) = Store::open(&settings.paths, name)? else { return Err(super::unknown(&settings.paths, name)) };
    tell(settings, store.state(), &settings.paths.cluster(name)).await
}

/// Has all hosts of a cluster save now what they save at its end; `on_progress` hears how many bytes all of them have copied, of
/// how many.
///
/// # Errors
/// If the cluster is unknown, or its records cannot be written. A host that does not answer is in the result.
pub async fn save_on_hosts(
    settings: &Settings,
    name: &ClusterName,
    on_progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<GuardsReport> {
    let Some(store) = Store::open(&settings.paths, name)? else { return Err(super::unknown(&settings.paths, name)) };
    refuse_other_machine(&settings.paths, store.state(), "save")?;
    let seen = Guards::of(settings, store.state(), Files::IfWanted)
        .await?
        .ask(&GuardAsk::Save, SAVES_WITHIN, on_progress)
        .await;
    seen.write(&settings.paths.cluster(name))?;
    Ok(seen)
}

/// Gives the hosts of a cluster its end, if they do not know it, and reads how far their guards are. `None` if it has none.
///
/// # Errors
/// If its records cannot be written. A host that does not answer is in the result.
pub(super) async fn tell(
    settings: &Settings,
    known: &ClusterState,
    folder: &std::path::Path,
) -> Result<Option<GuardsReport>> {
    let has_guard = known.running_spec().is_some_and(|spec| spec.end.is_some() || spec.idle.is_some());
    let runs = known.projects().any(|(_, project)| !project.stopped) || known.platform().is_some();
    if !has_guard || !runs {
        return Ok(None);
    }
    give(&Guards::of(settings, known, Files::IfWanted).await?, known, folder).await.map(Some)
}

/// The same for guards in pods, which get their files, too: `up` may have changed them. Nothing where it has none.
///
/// # Errors
/// If its records cannot be written, or a guard did not take it.
pub(super) async fn bring(settings: &Settings, known: &ClusterState, folder: &std::path::Path) -> Result<()> {
    let all = Guards::of(settings, known, Files::Always).await?;
    if all.guards.is_empty() {
        return Ok(());
    }
    let seen = give(&all, known, folder).await?;
    match seen.hosts.into_iter().find_map(|host| host.error) {
        Some(why) => {
            Err(Error::new(ErrorKind::Host, "give the guard in the head's pod the end of the cluster").because(why))
        }
        None => Ok(()),
    }
}

/// Gives all guards the end of the cluster, if they do not know it, and reads how far they are.
async fn give(all: &Guards, known: &ClusterState, folder: &std::path::Path) -> Result<GuardsReport> {
    let (end, last) = (End::for_hosts(folder, known), GivenEnd::last(folder));
    let given = match last {
        Some(last) if last.is(end) => last.again(folder),
        None if end.is_none() => GivenEnd::nothing(),
        _ => GivenEnd::next(folder, end, 0)?,
    };
    let mut seen = all.give(&given).await?;
    // A guard knows a later one, such as from before this record was lost: it ignored what it was given.
    if given.revision > 0 && seen.revision() > given.revision {
        let given = GivenEnd::next(folder, end, seen.revision())?;
        seen = all.give(&given).await?;
    }
    seen.write(folder)?;
    Ok(seen)
}

/// When guards in pods get their files. Those of hosts get them with the files of nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Files {
    /// When they have others, or none.
    IfWanted,
    /// Each time.
    Always,
}

/// The guards of a cluster, each with its host.
pub(super) struct Guards {
    machines: Machines,
    guards: Vec<(String, Guard<'static>)>,
}

impl Guards {
    /// The guards of a cluster. No host is connected yet.
    ///
    /// # Errors
    /// If the connections to its hosts cannot be written.
    pub(super) async fn of(settings: &Settings, known: &ClusterState, files: Files) -> Result<Self> {
        let access = super::access(&settings.paths, known);
        let environment = settings.host_environment.clone();
        let machines = Machines::of(&settings.paths, known, &settings.context(), environment, access).await?;
        let Some(spec) = known.running_spec() else { return Ok(Self { machines, guards: Vec::new() }) };
        if machines.pods().is_some() {
            let guard = GuardInPod::of(spec, &settings.library)?;
            let (folder, always) = (settings.paths.cluster(&known.name), files == Files::Always);
            let guard = guard.map(|guard| Guard::InPod(PodGuard::new(guard, spec, &folder, always)));
            return Ok(Self { machines, guards: guard.map(|guard| ("head".to_owned(), guard)).into_iter().collect() });
        }
        let (scope, runtime) = (known.scope(), crate::runtime::of(spec.runtime));
        let hosts: Vec<Key> = known.hosts().map(|(key, _)| key.clone()).collect();
        let guard = |(host, guard): (Key, Key)| {
            let (tag, of_host) = (scope.tag(&guard), scope.tag(&host).to_string());
            (host.display_name(), Guard::OfHost { runtime, host: of_host, guard: tag })
        };
        Ok(Self { machines, guards: guards(spec, &hosts).into_iter().map(guard).collect() })
    }

    /// Gives all an end, and reads how far they are.
    ///
    /// # Errors
    /// If the end cannot be written.
    pub(super) async fn give(&self, given: &GivenEnd) -> Result<GuardsReport> {
        let text = given.text()?;
        Ok(self.ask(&GuardAsk::Tell(&text), ANSWERS_WITHIN, &|_, _| {}).await)
    }

    /// Has all do the same, each within this time.
    async fn ask(&self, ask: &GuardAsk<'_>, within: Duration, on_progress: &(dyn Fn(u64, u64) + Sync)) -> GuardsReport {
        let each = Mutex::new(vec![(0_u64, 0_u64); self.guards.len()]);
        let each = &each;
        let asks = self.guards.iter().enumerate().map(|(index, (host, guard))| async move {
            let hears = |done: u64, all: u64| {
                let Ok(mut each) = each.lock() else { return };
                each.get_mut(index).into_iter().for_each(|one| *one = (done, all));
                on_progress(each.iter().map(|one| one.0).sum(), each.iter().map(|one| one.1).sum());
            };
            let asked = tokio::time::timeout(within, self.ask_one(host, guard, ask, &hears)).await;
            let late = || Err(Error::new(ErrorKind::Timeout, "ask").because("it did not answer in time"));
            let host = host.clone();
            match asked.unwrap_or_else(|_| late()) {
                Ok((clock, guard)) => (HostGuard { host, guard: Some(guard), error: None }, clock),
                Err(error) => (HostGuard { host, guard: None, error: Some(error.to_string()) }, None),
            }
        });
        let (hosts, clocks): (Vec<_>, Vec<_>) = join_all(asks).await.into_iter().unzip();
        GuardsReport::new(Timestamp::now(), hosts, &clocks)
    }

    /// Has one do something; its host's clock, and its state.
    async fn ask_one(
        &self,
        host: &str,
        guard: &Guard<'_>,
        ask: &GuardAsk<'_>,
        on_progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<(Option<Timestamp>, GuardState)> {
        let answer = self.machines.named(host).await?.guard(guard, ask, on_progress).await?;
        let mut lines = answer.trim().lines();
        let (clock, state) = (lines.next().unwrap_or_default(), lines.next_back().unwrap_or_default());
        let doing = || format!("read the state of the guard on {host}");
        Ok((clock.parse().ok(), serde_json::from_str(state).doing(ErrorKind::Host, doing)?))
    }
}

/// What a provider has of the hosts of a cluster that it had lent for a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// What they are reserved by, or something that does not say how long it stays.
    Reserved,
    /// Nothing of what had an end: somebody else has deleted it.
    Nothing,
}

/// Records the end that the provider reports for the hosts, if it is another one than is known.
async fn learn_of_moved_end(settings: &Settings, name: &ClusterName, store: &Store) -> Result<Found> {
    let known = store.state();
    let (Some(before), Some(spec)) = (known.ends(), &known.spec) else { return Ok(Found::Reserved) };
    let provider = settings.provider(spec)?;
    let scope = known.scope();
    let found = tokio::time::timeout(PROVIDER_WITHIN, provider.observe(&scope)).await;
    let found = found.map_err(|_| {
        Error::new(ErrorKind::Timeout, "ask the provider for the hosts")
            .because(format!("it did not answer within {} s", PROVIDER_WITHIN.as_secs()))
    })??;
    match found.iter().filter_map(|found| found.until).min() {
        None => return Ok(Found::Nothing),
        Some(end) if end == before => {}
        Some(end) if record_end(settings, name, end)? => {
            let (was, is) = (crate::util::human::local(before), crate::util::human::local(end));
            settings.events.note(format!("the end of its hosts was moved by somebody else: {is}; it was {was}"));
        }
        Some(_) => {}
    }
    Ok(Found::Reserved)
}

/// Records that the hosts have ended before their time, once both say so: the provider, which has nothing of them, and they,
/// as none answers. One alone may be wrong for a while.
fn learn_of_early_end(settings: &Settings, name: &ClusterName, seen: Option<&GuardsReport>) -> Result<()> {
    let Some(store) = Store::open(&settings.paths, name)? else { return Ok(()) };
    let now = Timestamp::now();
    if store.state().ends().is_none_or(|end| end <= now) {
        return Ok(());
    }
    match seen.is_some_and(|seen| !seen.hosts.is_empty() && seen.guards().next().is_none()) {
        true if record_end(settings, name, now)? => settings.events.warn(
            "somebody else has deleted what its hosts were reserved by, and none of them answers: this is its end; what was \
             not saved before is lost",
        ),
        true => {}
        false => settings.events.warn(
            "its provider has nothing any more that its hosts are reserved by: they may be taken away at any moment; \
             `gpucl save` saves what is on them",
        ),
    }
    Ok(())
}

/// Records when the hosts of a cluster end; `false` where another command works on it, or it is gone.
fn record_end(settings: &Settings, name: &ClusterName, end: Timestamp) -> Result<bool> {
    let _lock = match Lock::take(&settings.paths, name, "agent") {
        Err(error) if error.kind() == ErrorKind::Locked => return Ok(false),
        lock => lock?,
    };
    let Some(store) = Store::open(&settings.paths, name)? else { return Ok(false) };
    let hosts: Vec<Key> = store.state().hosts().map(|(key, _)| key.clone()).collect();
    let ledger = Ledger::new(store);
    hosts.iter().try_for_each(|host| ledger.note_host(host, |notes| notes.until = Some(end)))?;
    Ok(true)
}
