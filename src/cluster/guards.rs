//! The guards on the hosts of a cluster: they are given its end, and asked how far they are. Both is one round trip.

use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;

use super::machines::{Machine, Machines};
use super::settings::Settings;
use super::which_machine::refuse_other_machine;
use crate::agent::end::End;
use crate::agent::seen::{Seen, SeenHost};
use crate::agent::told::Told;
use crate::engine::Ledger;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::{ClusterName, Key};
use crate::state::{ClusterState, Lock, Store};

/// How long a guard may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(40);
/// How long a provider may take to say when hosts end.
const PROVIDER_WITHIN: Duration = Duration::from_secs(40);

/// Looks at the end of a cluster: asks the provider for a moved one, gives the hosts what they do not know yet, and reads how
/// far their guards are. `None` if no guard of its runs.
///
/// # Errors
/// If the cluster is unknown, is on another machine, or its records cannot be written. A host that does not answer is in the
/// result.
pub async fn look_at_end(settings: &Settings, name: &ClusterName) -> Result<Option<Seen>> {
    let Some(store) = Store::open(&settings.paths, name)? else { return Err(super::unknown(&settings.paths, name)) };
    refuse_other_machine(&settings.paths, store.state(), "look at the end of")?;
    // What fails here is known as it was: hosts can be looked at all the same.
    if let Err(error) = learn_of_moved_end(settings, name, &store).await {
        settings.events.warn(format!("the provider was not asked whether the end has moved: {error}"));
    }
    let Some(store) = Store::open(&settings.paths, name)? else { return Ok(None) };
    tell(settings, store.state(), &settings.paths.cluster(name)).await
}

/// Gives the hosts of a cluster its end, if they do not know it, and reads how far their guards are. `None` if it has none.
///
/// # Errors
/// If its records cannot be written. A host that does not answer is in the result.
pub(super) async fn tell(settings: &Settings, known: &ClusterState, folder: &std::path::Path) -> Result<Option<Seen>> {
    let has_guard = known.running_spec().is_some_and(|spec| spec.end.is_some() || spec.idle.is_some());
    let runs = !known.started_nodes().is_empty() || known.platform().is_some();
    if !has_guard || !runs {
        return Ok(None);
    }
    let access = super::access(&settings.paths, known);
    let environment = settings.host_environment.clone();
    let machines = Machines::of(&settings.paths, known, &settings.context(), environment, access).await?;
    let machines = machines.chosen(&[]).await?;
    let (mut hosts, mut clocks) = ask_all(&machines, None).await;
    let end = End::for_hosts(folder, known);
    let last = Told::last(folder);
    let is_known = |told: &Told| {
        told.is(end) && hosts.iter().all(|host| host.guard.as_ref().is_none_or(|guard| guard.revision == told.revision))
    };
    let has_news = if last.is_none() { end.is_some() } else { !last.as_ref().is_some_and(is_known) };
    if has_news && hosts.iter().any(|host| host.guard.is_some()) {
        let seen = hosts.iter().filter_map(|host| Some(host.guard.as_ref()?.revision)).max().unwrap_or_default();
        let told = Told::next(folder, end, seen)?;
        (hosts, clocks) = ask_all(&machines, Some(&told)).await;
    }
    let seen = Seen::new(Timestamp::now(), hosts, &clocks);
    seen.write(folder)?;
    Ok(Some(seen))
}

/// Asks all guards, or gives them an end. Hosts without one are left out.
async fn ask_all(machines: &[Machine<'_>], told: Option<&Told>) -> (Vec<SeenHost>, Vec<Option<Timestamp>>) {
    let asks = machines.iter().map(|machine| async {
        let asked = tokio::time::timeout(ANSWERS_WITHIN, ask(machine, told)).await;
        let host = machine.name().to_owned();
        match asked {
            Ok(Ok(None)) => None,
            Ok(Ok(Some((clock, guard)))) => Some((SeenHost { host, guard: Some(guard), error: None }, clock)),
            Ok(Err(error)) => Some((SeenHost { host, guard: None, error: Some(error.to_string()) }, None)),
            Err(_) => {
                let why = format!("it did not answer within {} s", ANSWERS_WITHIN.as_secs());
                Some((SeenHost { host, guard: None, error: Some(why) }, None))
            }
        }
    });
    join_all(asks).await.into_iter().flatten().unzip()
}

/// Asks one guard, or gives it an end; its host's clock, and its state.
async fn ask(
    machine: &Machine<'_>,
    told: Option<&Told>,
) -> Result<Option<(Option<Timestamp>, crate::agent::seen::GuardState)>> {
    let text = told.map(Told::text).transpose()?;
    let asked = match &text {
        Some(text) => machine.guard("tell", Some(text)).await?,
        None => machine.guard("report", None).await?,
    };
    let Some(answer) = asked else { return Ok(None) };
    let (clock, state) = answer.split_once('\n').unwrap_or_default();
    let doing = || format!("read the state of the guard on {}", machine.name());
    Ok(Some((clock.parse().ok(), serde_json::from_str(state.trim()).doing(ErrorKind::Host, doing)?)))
}

/// Records the end that the provider reports for the hosts, if it is another one than is known.
async fn learn_of_moved_end(settings: &Settings, name: &ClusterName, store: &Store) -> Result<()> {
    let known = store.state();
    let (Some(before), Some(spec)) = (known.ends(), &known.spec) else { return Ok(()) };
    let provider = settings.provider(spec)?;
    let scope = known.scope();
    let found = tokio::time::timeout(PROVIDER_WITHIN, provider.observe(&scope)).await;
    let found = found.map_err(|_| {
        Error::new(ErrorKind::Timeout, "ask the provider for the hosts")
            .because(format!("it did not answer within {} s", PROVIDER_WITHIN.as_secs()))
    })??;
    let Some(end) = found.iter().filter_map(|found| found.until).min().filter(|end| *end != before) else {
        return Ok(());
    };
    let lock = match Lock::take(&settings.paths, name, "agent") {
        Err(error) if error.kind() == ErrorKind::Locked => return Ok(()),
        lock => lock?,
    };
    let Some(store) = Store::open(&settings.paths, name)? else { return Ok(()) };
    let hosts: Vec<Key> = store.state().hosts().map(|(key, _)| key.clone()).collect();
    let ledger = Ledger::new(store);
    hosts.iter().try_for_each(|host| ledger.note_host(host, |notes| notes.until = Some(end)))?;
    let (was, is) = (crate::util::human::local(before), crate::util::human::local(end));
    settings.events.note(format!("the end of its hosts was moved by somebody else: {is}; it was {was}"));
    drop(lock);
    Ok(())
}
