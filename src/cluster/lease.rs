//! Standalone leases, which belong to no cluster: `gpucl lease`. They share one journal, and `lease` is in their tags.
//!
//! They are created and deleted by the engine's write-ahead protocol. Calls that a crash left open are looked up by
//! tag before the next lease is requested.

mod source;
#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use backon::{ConstantBuilder, Retryable as _};
use jiff::Timestamp;

use crate::cluster::settings::Settings;
use crate::engine::Ledger;
use crate::engine::recovery::{look_until_certain, may_appear};
use crate::engine::write_ahead::{has_id, making, removing};
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::name::{ClusterName, Key, Scope};
use crate::provider::{EndAsk, HostFilter, LeaseAsk, Proposal, Provider, Reservations, StartAsk};
use crate::state::{Item, ItemState, LeaseNotes, LeaseSource, Lock, Notes, Record, Store};
use crate::util::{digest, random};

pub use source::open_source;

/// The tries for the journal's lock, over 30 s: another `gpucl lease` holds it for one call to the service.
const LOCK_TRIES: ConstantBuilder = ConstantBuilder::new().with_delay(Duration::from_millis(100)).with_max_times(300);
/// The number of random letters in a key.
const KEY_LETTERS: usize = 6;

/// Opens the provider at the place that the journal names for a lease.
pub type Opener<'a> = &'a (dyn Fn(&LeaseSource) -> Result<Box<dyn Provider>> + Sync);

/// A lease that an earlier command requested without reporting the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The provider's id of the lease.
    pub id: String,
    /// The requested name.
    pub name: String,
    /// The digest of the request.
    asked: String,
}

impl Recovered {
    /// Whether it was requested with these same arguments.
    pub fn is(&self, source: &LeaseSource, ask: &LeaseAsk) -> bool {
        self.asked == digest_of(source, ask)
    }
}

/// The outcome of [`recover`].
#[derive(Debug, Default)]
pub struct Recovery {
    /// Leases that turned out to exist.
    pub found: Vec<Recovered>,
    /// Requested names of leases that do not exist.
    pub forgotten: Vec<String>,
    /// Leases whose provider could not be queried, by requested name, with the error.
    pub open: Vec<(String, Error)>,
}

/// Returns the scope of standalone leases.
pub fn scope(settings: &Settings) -> Scope {
    settings.scope(&ClusterName::lease())
}

/// Generates a random key for a new lease.
pub fn new_key() -> Result<Key> {
    Ok(Key::lease(&random::letters(KEY_LETTERS)?))
}

/// Resolves leases that earlier commands left open: records those that exist and forgets those that do not.
pub async fn recover(settings: &Settings, open: Opener<'_>) -> Result<Recovery> {
    let mut recovery = Recovery::default();
    if Store::open(&settings.paths, &ClusterName::lease())?.is_none() {
        return Ok(recovery);
    }
    let _lock = lock(settings).await?;
    let Some(store) = Store::open(&settings.paths, &ClusterName::lease())? else { return Ok(recovery) };
    let ledger = Ledger::new(store);
    let now = Timestamp::now();
    for (key, item) in ledger.state().items {
        // The note is written before the call is sent: without one there was no call.
        let Some(noted) = ledger.state().lease(&key).cloned() else {
            ledger.write(Record::Gone { key })?;
            continue;
        };
        match item.state {
            ItemState::Ready | ItemState::Releasing if noted.end < now => ledger.write(Record::Gone { key })?,
            ItemState::Ready | ItemState::Releasing => {}
            // Its id is known, but was never reported to the user.
            ItemState::Exists => {
                ledger.write(Record::Ready { key })?;
                let id = item.id.clone().unwrap_or_default();
                recovery.found.push(Recovered { id, name: noted.name, asked: noted.asked });
            }
            ItemState::Requested => match find_id(settings, open, &noted.source, &key, &item).await {
                Ok(Some(id)) => {
                    ledger.write(Record::Exists { key: key.clone(), id: id.clone() })?;
                    ledger.write(Record::Ready { key })?;
                    recovery.found.push(Recovered { id, name: noted.name, asked: noted.asked });
                }
                Ok(None) => {
                    ledger.write(Record::Gone { key })?;
                    recovery.forgotten.push(noted.name);
                }
                Err(error) => recovery.open.push((noted.name, error)),
            },
        }
    }
    close(settings, ledger)?;
    Ok(recovery)
}

/// Finds the id of the resource with this key; `None` once the consistency delay is over.
async fn find_id(
    settings: &Settings,
    open: Opener<'_>,
    source: &LeaseSource,
    key: &Key,
    item: &Item,
) -> Result<Option<String>> {
    let provider = open(source)?;
    let delay = provider.capability().consistency_delay;
    let look = || async {
        let found = provider.observe(&scope(settings)).await?;
        Ok(found.into_iter().find(|found| found.key == *key).map(|found| found.id))
    };
    let missing = |id: &Option<String>| (id.is_none() && may_appear(item, delay)).then(|| key.clone());
    look_until_certain(delay, look, missing, &settings.cancel, &settings.events).await
}

/// Acquires a proposed lease and returns its id.
pub async fn acquire(
    settings: &Settings,
    source: &LeaseSource,
    provider: &dyn Provider,
    ask: &LeaseAsk,
    proposal: &Proposal,
) -> Result<String> {
    let scope = scope(settings);
    let request = &proposal.request;
    let key = request.key.clone();
    let _lock = lock(settings).await?;
    let store = match Store::open(&settings.paths, &scope.cluster)? {
        Some(store) => store,
        None => Store::create(&settings.paths, &scope, Timestamp::now())?,
    };
    let ledger = Ledger::new(store);
    let source = LeaseSource { place: proposal.place.clone(), ..source.clone() };
    let asked = digest_of(&source, ask);
    let notes = Notes::Lease(Box::new(LeaseNotes { source, name: proposal.name.clone(), end: proposal.end, asked }));
    let call = async {
        ledger.write(Record::Noted { key: key.clone(), notes })?;
        Ok(provider.acquire(&scope.tag(&key), request, &ledger).await?.id)
    };
    match making(&ledger, request, None, call).await {
        Ok(id) => {
            ledger.write(Record::Ready { key })?;
            close(settings, ledger)?;
            Ok(id)
        }
        // Certainly nothing was created, so there is nothing to recover.
        Err(error) if *error.left_behind() == LeftBehind::Clear && !has_id(&ledger, &key) => {
            ledger.write(Record::Gone { key })?;
            close(settings, ledger)?;
            Err(error)
        }
        Err(error) => {
            let _ = ledger.compact();
            Err(error.hint("gpucl lease list   # looks for what may have been created"))
        }
    }
}

/// Deletes a lease, and removes it from the journal if it is ours.
pub async fn delete(settings: &Settings, reservations: &dyn Reservations, id: &str) -> Result<()> {
    let Some(ledger) = known(settings, id).await? else { return reservations.delete(id).await };
    let (_lock, ledger, key) = ledger;
    removing(&ledger, &key, reservations.delete(id)).await?;
    close(settings, ledger)
}

/// Records the new end of a lease: in the journal, if it is there, and for clusters on its hosts.
pub async fn moved(settings: &Settings, id: &str, end: Timestamp) -> Result<()> {
    if let Some((_lock, ledger, key)) = known(settings, id).await? {
        if let Some(noted) = ledger.state().lease(&key).cloned() {
            ledger.write(Record::Noted { key, notes: Notes::Lease(Box::new(LeaseNotes { end, ..noted })) })?;
        }
        close(settings, ledger)?;
    }
    Store::names(&settings.paths)?.iter().try_for_each(|cluster| moved_for(settings, cluster, id, end))
}

/// Records the new end for the hosts of a cluster, if it uses the lease.
fn moved_for(settings: &Settings, cluster: &ClusterName, id: &str, end: Timestamp) -> Result<()> {
    let uses_it = |store: &Store| store.state().items.values().any(|item| item.id.as_deref() == Some(id));
    if !Store::open(&settings.paths, cluster)?.is_some_and(|store| uses_it(&store)) {
        return Ok(());
    }
    let _lock = match Lock::take(&settings.paths, cluster, "lease") {
        Ok(lock) => lock,
        Err(error) if error.kind() == ErrorKind::Locked => {
            let why = "another command is changing it";
            settings.events.warn(format!("{cluster}: {why}; its next `gpucl up` takes over the new end"));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let Some(store) = Store::open(&settings.paths, cluster)? else { return Ok(()) };
    let hosts = store.state().hosts().filter(|(_, host)| host.until.is_some()).map(|(key, _)| key.clone());
    let hosts: Vec<Key> = hosts.collect();
    let ledger = Ledger::new(store);
    hosts.iter().try_for_each(|host| ledger.note_host(host, |notes| notes.until = Some(end)))?;
    ledger.compact()
}

/// Locks the journal and finds the key of the lease with this id.
async fn known(settings: &Settings, id: &str) -> Result<Option<(Lock, Ledger, Key)>> {
    if Store::open(&settings.paths, &ClusterName::lease())?.is_none() {
        return Ok(None);
    }
    let lock = lock(settings).await?;
    let Some(store) = Store::open(&settings.paths, &ClusterName::lease())? else { return Ok(None) };
    let key = store.state().items.iter().find(|(_, item)| item.id.as_deref() == Some(id)).map(|(key, _)| key.clone());
    Ok(key.map(|key| (lock, Ledger::new(store), key)))
}

/// Writes a snapshot, or removes the journal if it is empty.
fn close(settings: &Settings, ledger: Ledger) -> Result<()> {
    if !ledger.state().items.is_empty() {
        return ledger.compact();
    }
    let held = || Error::new(ErrorKind::Internal, "close the journal of leases").because("it is still in use");
    ledger.into_store().ok_or_else(held)?.remove()?;
    let _ = fs_err::remove_dir(settings.paths.clusters());
    Ok(())
}

/// Takes the journal's lock, waiting as [`LOCK_TRIES`] says.
async fn lock(settings: &Settings) -> Result<Lock> {
    let take = || async { Lock::take(&settings.paths, &ClusterName::lease(), "lease") };
    take.retry(LOCK_TRIES).when(|error: &Error| error.kind() == ErrorKind::Locked).await
}

/// The digest of a request: equal arguments give equal digests, also of an earlier gpucl.
fn digest_of(source: &LeaseSource, ask: &LeaseAsk) -> String {
    digest::of_json(&(&source.provider, &source.settings, in_words(ask)))
}

/// A request as the journal's digests have it. Other words than these would not match the digests of leases that an
/// earlier gpucl requested, whatever the fields are called now.
fn in_words(ask: &LeaseAsk) -> String {
    let LeaseAsk { hosts, count, start, end, name, shorten } = ask;
    let HostFilter { nodes, kind, gpu, gpus } = hosts;
    let start = match start {
        StartAsk::Next => "Next".to_owned(),
        StartAsk::Now => "Now".to_owned(),
        StartAsk::At(at) => format!("At({at:?})"),
    };
    let end = match end {
        EndAsk::After(time) => format!("After({time:?})"),
        EndAsk::At(at) => format!("At({at:?})"),
    };
    format!(
        "LeaseAsk {{ hosts: HostFilter {{ nodes: {nodes:?}, kind: {kind:?}, gpu: {gpu:?}, gpus: {gpus:?} }}, \
         count: {count:?}, start: {start}, end: {end}, name: {name:?}, shorten: {shorten:?} }}"
    )
}
