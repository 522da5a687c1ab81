//! Leases that belong to no cluster: `gpucl lease`. They have a journal of their own, and the word `lease` in their tags.
//!
//! As with a cluster, what is asked for stands on the disk before the call, its id before the call returns. What a crash left
//! open is looked for by its tag before the next one is asked for.

#[cfg(test)]
pub(crate) mod tests;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Settings;
use crate::engine::Ledger;
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::name::{ClusterName, Key, Scope};
use crate::provider::{LeaseAsk, Proposal, Provider, Reservations};
use crate::state::{Item, ItemKind, ItemState, Lock, Record, Store};
use crate::util::{digest, random};

/// How long another `gpucl lease` may hold the journal before we give up: it is one call to the service.
const LOCK_LIMIT: Duration = Duration::from_secs(30);
/// How many letters make a key.
const KEY_LETTERS: usize = 6;
/// What is noted of a lease.
const NOTE: &str = "lease";

/// Where a lease is, so that what was left open is asked for at the right place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The provider's name.
    pub provider: String,
    /// The settings that it was opened with.
    pub settings: serde_json::Value,
    /// The site that was found for them.
    #[serde(default)]
    pub place: String,
}

/// What is remembered of a lease beside its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    source: Source,
    name: String,
    end: Timestamp,
}

/// Opens the place that a lease of the journal is at.
pub type Opener<'a> = &'a (dyn Fn(&Source) -> Result<Box<dyn Provider>> + Sync);

/// A lease that an earlier command asked for and never told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Its id.
    pub id: String,
    /// Its name, as it was asked for.
    pub name: String,
    /// The digest of what was asked for.
    digest: String,
}

impl Recovered {
    /// It is what this asks for.
    pub fn is(&self, source: &Source, ask: &LeaseAsk) -> bool {
        self.digest == digest_of(source, ask)
    }
}

/// What became of what was left open.
#[derive(Debug, Default)]
pub struct Settled {
    /// What exists.
    pub found: Vec<Recovered>,
    /// What does not: the names that it was asked for by.
    pub forgotten: Vec<String>,
    /// What could not be asked, and why.
    pub open: Vec<(String, Error)>,
}

/// The scope of standalone leases.
pub fn scope(settings: &Settings) -> Scope {
    settings.scope(&ClusterName::lease())
}

/// A key for a new lease.
pub fn new_key() -> Result<Key> {
    Ok(Key::lease(&random::letters(KEY_LETTERS)?))
}

/// Looks for what earlier commands left open: what exists is written down, what does not is forgotten.
pub async fn settle(settings: &Settings, open: Opener<'_>) -> Result<Settled> {
    let mut settled = Settled::default();
    if Store::open(&settings.paths, &ClusterName::lease())?.is_none() {
        return Ok(settled);
    }
    let _lock = lock(settings).await?;
    let Some(store) = Store::open(&settings.paths, &ClusterName::lease())? else { return Ok(settled) };
    let ledger = Ledger::new(store);
    let now = Timestamp::now();
    for (key, item) in ledger.state().items {
        let noted: Option<Noted> = ledger.state().note(&key, NOTE);
        // Without its note the call was not sent: it is written before.
        let Some(noted) = noted else {
            ledger.write(Record::Gone { key })?;
            continue;
        };
        match item.state {
            ItemState::Ready | ItemState::Releasing if noted.end < now => ledger.write(Record::Gone { key })?,
            ItemState::Ready | ItemState::Releasing => {}
            // Its id is known, and whoever asked for it was never told.
            ItemState::Exists => {
                ledger.write(Record::Ready { key })?;
                let id = item.id.clone().unwrap_or_default();
                settled.found.push(Recovered { id, name: noted.name, digest: item.digest });
            }
            ItemState::Requested => match look(settings, open, &noted.source, &key, &item).await {
                Ok(Some(id)) => {
                    ledger.write(Record::Exists { key: key.clone(), id: id.clone() })?;
                    ledger.write(Record::Ready { key })?;
                    settled.found.push(Recovered { id, name: noted.name, digest: item.digest });
                }
                Ok(None) => {
                    ledger.write(Record::Gone { key })?;
                    settled.forgotten.push(noted.name);
                }
                Err(error) => settled.open.push((noted.name, error)),
            },
        }
    }
    close(settings, ledger)?;
    Ok(settled)
}

/// The id of what carries this key, once the call can have had its effect.
async fn look(
    settings: &Settings,
    open: Opener<'_>,
    source: &Source,
    key: &Key,
    item: &Item,
) -> Result<Option<String>> {
    let provider = open(source)?;
    let settle = provider.capability().settle;
    loop {
        let found = provider.observe(&scope(settings)).await?;
        if let Some(found) = found.into_iter().find(|found| found.key == *key) {
            return Ok(Some(found.id));
        }
        let since = item.since.duration_until(Timestamp::now()).unsigned_abs();
        if since > settle {
            return Ok(None);
        }
        tokio::time::sleep(Duration::from_millis(500).min(settle / 4).max(Duration::from_millis(1))).await;
    }
}

/// Acquires what was proposed; hands back its id.
pub async fn acquire(
    settings: &Settings,
    source: &Source,
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
    let kind = ItemKind::Resource(request.kind.0.clone());
    let source = Source { place: proposal.place.clone(), ..source.clone() };
    ledger.write(Record::Requested { key: key.clone(), kind, digest: digest_of(&source, ask) })?;
    ledger.note(&key, NOTE, &Noted { source, name: proposal.name.clone(), end: proposal.end })?;
    match provider.acquire(&scope.tag(&key), request, &ledger).await {
        Ok(acquired) => {
            ledger.write(Record::Ready { key })?;
            close(settings, ledger)?;
            Ok(acquired.id)
        }
        Err(error) if *error.left_behind() == LeftBehind::Clear && has_no_id(&ledger, &key) => {
            ledger.write(Record::Gone { key })?;
            close(settings, ledger)?;
            Err(error)
        }
        Err(error) => {
            let _ = ledger.compact();
            Err(error.hint("gpucl lease list   # looks for what may have been made"))
        }
    }
}

fn has_no_id(ledger: &Ledger, key: &Key) -> bool {
    ledger.state().items.get(key).is_none_or(|item| item.id.is_none())
}

/// Deletes a lease, and forgets it once it is gone.
pub async fn delete(settings: &Settings, reservations: &dyn Reservations, id: &str) -> Result<()> {
    let Some(ledger) = known(settings, id).await? else { return reservations.delete(id).await };
    let (_lock, ledger, key) = ledger;
    ledger.write(Record::Releasing { key: key.clone() })?;
    reservations.delete(id).await?;
    ledger.write(Record::Gone { key })?;
    close(settings, ledger)
}

/// Remembers another end of a lease; what is not ours to remember is passed over.
pub async fn moved(settings: &Settings, id: &str, end: Timestamp) -> Result<()> {
    let Some((_lock, ledger, key)) = known(settings, id).await? else { return Ok(()) };
    if let Some(noted) = ledger.state().note::<Noted>(&key, NOTE) {
        ledger.note(&key, NOTE, &Noted { end, ..noted })?;
    }
    close(settings, ledger)
}

/// The journal, locked, with the key of the lease that has this id.
async fn known(settings: &Settings, id: &str) -> Result<Option<(Lock, Ledger, Key)>> {
    if Store::open(&settings.paths, &ClusterName::lease())?.is_none() {
        return Ok(None);
    }
    let lock = lock(settings).await?;
    let Some(store) = Store::open(&settings.paths, &ClusterName::lease())? else { return Ok(None) };
    let key = store.state().items.iter().find(|(_, item)| item.id.as_deref() == Some(id)).map(|(key, _)| key.clone());
    Ok(key.map(|key| (lock, Ledger::new(store), key)))
}

/// Writes a snapshot; a journal of nothing is removed.
fn close(settings: &Settings, ledger: Ledger) -> Result<()> {
    if !ledger.state().items.is_empty() {
        return ledger.compact();
    }
    let held = || Error::new(ErrorKind::Internal, "close the journal of leases").because("something holds it still");
    ledger.into_store().ok_or_else(held)?.remove()?;
    let _ = fs_err::remove_dir(settings.paths.clusters());
    Ok(())
}

/// The lock of the journal. Another command holds it for one call, so it is waited for.
async fn lock(settings: &Settings) -> Result<Lock> {
    let begin = Instant::now();
    loop {
        match Lock::take(&settings.paths, &ClusterName::lease(), "lease") {
            Err(error) if error.kind() == ErrorKind::Locked && begin.elapsed() < LOCK_LIMIT => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            taken => return taken,
        }
    }
}

/// The digest of what a person asked for: the same words again are the same ask.
fn digest_of(source: &Source, ask: &LeaseAsk) -> String {
    digest::of_json(&(&source.provider, &source.settings, format!("{ask:?}")))
}
