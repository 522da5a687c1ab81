//! Hosts from their provider: pinned down before the plan, acquired, waited for, and found again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::world::ProjectWorld;
use jiff::Timestamp;

use crate::engine::Ledger;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::plan::Observed;
use crate::provider::{HostPlace, HostRequest, Offer, Recorder as _, ResourceRequest, Start};
use crate::state::ClusterState;

/// How often a provider is asked whether a host is still there while something is done on it.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// What [`crate::provider::Provider::resolve`] found, as the plan needs it.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) offers: Vec<Offer>,
    pub(super) start: Option<Start>,
    pub(super) end: Option<Timestamp>,
    pub(super) notes: Vec<String>,
}

impl ProjectWorld {
    /// Pins down what the spec leaves open, and says what there is to know of it.
    pub(super) async fn resolve(&self) -> Result<Found> {
        let config = &self.config;
        let resolved = config.provider.resolve(&config.scope, self.hosts()).await?;
        for note in &resolved.notes {
            config.events.note(note);
        }
        {
            let mut learned = self.learned();
            (learned.hosts, learned.end) = (Some(resolved.hosts), resolved.end);
            learned.start = resolved.start.as_ref().map(|start| start.at);
        }
        let offers = match resolved.offers.is_empty() {
            true => config.provider.offers().await?,
            false => resolved.offers,
        };
        Ok(Found { offers, start: resolved.start, end: resolved.end, notes: resolved.notes })
    }

    /// Hosts are made and unmade: one that is no good can be made once more.
    pub(super) fn makes_hosts(&self) -> bool {
        self.config.provider.capability().hosts_vanish
    }

    /// The hosts that the spec asks for, pinned down where that was done.
    pub(super) fn hosts(&self) -> Vec<HostRequest> {
        if let Some(hosts) = &self.learned().hosts {
            return hosts.clone();
        }
        let entries = self.config.spec.hosts.iter().enumerate();
        entries.map(|(index, settings)| HostRequest::new(Key::host(index), settings.clone())).collect()
    }

    /// What the hosts take, each once, in an order in which it can be acquired.
    pub(super) fn requests(&self) -> Result<Vec<ResourceRequest>> {
        let mut requests: Vec<ResourceRequest> = Vec::new();
        for host in self.hosts() {
            for request in self.config.provider.expand(&self.config.scope, &host)? {
                if requests.iter().all(|known| known.key != request.key) {
                    requests.push(request);
                }
            }
        }
        Ok(requests)
    }

    /// What the provider has of the cluster, and what the cluster uses of others'.
    pub(super) async fn observe_resources(&self) -> Result<Observed> {
        let config = &self.config;
        let resources = config.provider.observe(&config.scope).await?;
        let mut observed = Observed { resources, ..Observed::default() };
        let is_resolved = self.learned().hosts.is_some();
        let adopted: Vec<ResourceRequest> = match is_resolved {
            true => self.requests()?.into_iter().filter(|request| request.adopted.is_some()).collect(),
            false => Vec::new(),
        };
        if !adopted.is_empty() {
            observed.resources.extend(config.provider.observe_adopted(&adopted).await?);
        }
        Ok(observed)
    }

    /// The places of all hosts that are there: those that were acquired, and those that stand there before.
    pub(super) async fn find_places(&self, known: &ClusterState, observed: &Observed) -> Result<Vec<Key>> {
        let mut places = BTreeMap::new();
        let wanted: BTreeSet<Key> = self.host_keys().into_iter().collect();
        let is_host = |key: &Key| wanted.is_empty() || wanted.contains(key);
        for found in observed.resources.iter().filter(|found| found.usable && is_host(&found.key)) {
            let noted = known.items.get(&found.key).is_some_and(|item| item.id.as_deref() == Some(found.id.as_str()));
            let place = match known.note(&found.key, "place").filter(|_| noted) {
                Some(place) => Ok(place),
                None => self.config.provider.place(&self.config.scope.tag(&found.key), &found.id).await,
            };
            if let Ok(place) = place {
                places.insert(found.key.clone(), place);
            }
        }
        for request in self.hosts() {
            if let (false, Some(place)) = (places.contains_key(&request.key), self.config.provider.standing(&request)) {
                places.insert(request.key, place);
            }
        }
        let keys = places.keys().cloned().collect();
        for (key, place) in &places {
            self.config.reach.know(key, place).await;
        }
        self.learned().places = places;
        Ok(keys)
    }

    /// Acquires one resource, and waits until it is usable.
    pub(super) async fn acquire(&self, key: &Key, request: &ResourceRequest, ledger: &Ledger) -> Result<()> {
        let tag = self.config.scope.tag(key);
        let acquired = self.config.provider.acquire(&tag, request, ledger).await?;
        ledger.exists(key, &acquired.id).await?;
        self.wait_for(key, request, &acquired.id, ledger).await
    }

    /// Waits until what is there is usable, and writes down where it is.
    pub(super) async fn wait_for(&self, key: &Key, request: &ResourceRequest, id: &str, ledger: &Ledger) -> Result<()> {
        let tag = self.config.scope.tag(key);
        self.config.provider.wait_usable(&tag, request, id).await?;
        if request.is_host {
            let place = self.config.provider.place(&tag, id).await?;
            self.note_place(key, &place, ledger)?;
            let end = self.learned().end;
            end.map_or(Ok(()), |end| note_end(key, end, ledger))?;
            self.config.reach.know(key, &place).await;
            self.learned().places.insert(key.clone(), place);
        }
        Ok(())
    }

    /// Does something on a host for as long as its provider has it: the time of one that was reserved may end meanwhile, or
    /// somebody may delete it, and who only waits for its answer waits for nothing.
    pub(super) async fn while_there<T>(&self, host: &Key, work: impl Future<Output = Result<T>>) -> Result<T> {
        if !self.makes_hosts() {
            return work.await;
        }
        tokio::select! {
            done = work => done,
            gone = self.until_gone(host) => Err(gone),
        }
    }

    async fn until_gone(&self, host: &Key) -> Error {
        let config = &self.config;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // What cannot be asked for a moment is not gone.
            let Ok(found) = config.provider.observe(&config.scope).await else { continue };
            let why = match found.iter().find(|found| found.key == *host) {
                Some(found) if found.usable || found.coming => continue,
                Some(found) => found.detail.clone(),
                None => "its provider has it no more".to_owned(),
            };
            return Error::new(ErrorKind::Provider, format!("go on with {}", host.display_name())).because(why);
        }
    }

    fn note_place(&self, key: &Key, place: &HostPlace, ledger: &Ledger) -> Result<()> {
        if ledger.state().note::<HostPlace>(key, "place").as_ref() == Some(place) {
            return Ok(());
        }
        ledger.note(key, "place", place)
    }

    /// Writes down what is used and not ours, and until when what is there lasts.
    pub(super) fn note_resources(&self, observed: &Observed, ledger: &Ledger) -> Result<()> {
        let known = ledger.state();
        for found in &observed.resources {
            if !known.items.contains_key(&found.key) {
                continue;
            }
            if found.adopted && known.note::<bool>(&found.key, "adopted") != Some(true) {
                ledger.note(&found.key, "adopted", &true)?;
            }
        }
        match end_of(observed) {
            Some(end) => self.host_keys().iter().try_for_each(|host| note_end(host, end, ledger)),
            None => Ok(()),
        }
    }
}

/// When the first of what was seen ends by itself.
pub(super) fn end_of(observed: &Observed) -> Option<Timestamp> {
    observed.resources.iter().filter_map(|found| found.until).min()
}

/// Writes down when a host is taken away.
fn note_end(host: &Key, end: Timestamp, ledger: &Ledger) -> Result<()> {
    let known = ledger.state();
    if !known.items.contains_key(host) || known.note(host, "until") == Some(end) {
        return Ok(());
    }
    ledger.note(host, "until", &end)
}
