//! Hosts from their provider: resolved before the plan, acquired, waited for, and found again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::expected::project_of;
use super::world::{ProjectWorld, Purpose};
use crate::engine::Ledger;
use crate::error::{Error, ErrorKind, Result};
use crate::host::{Account, SshTarget};
use crate::money;
use crate::name::Key;
use crate::plan::Observed;
use crate::provider::{HostPlace, HostRequest, ObservedResource, Offer, Recorder as _, ResourceRequest, Start};
use crate::state::{ClusterState, Record};

/// How often a provider is asked whether a host still exists while an operation runs on it.
const CHECK_EVERY: Duration = Duration::from_secs(15);

/// The result of [`crate::provider::Provider::resolve`] that the plan needs.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) offers: Vec<Offer>,
    pub(super) start: Option<Start>,
    pub(super) end: Option<Timestamp>,
    pub(super) notes: Vec<String>,
}

impl ProjectWorld {
    /// Resolves what the spec leaves open, and reports the provider's notes.
    pub(super) async fn resolve(&self) -> Result<Found> {
        let config = &self.config;
        let resolved = config.provider.resolve(&config.scope, self.spec_hosts()).await?;
        for note in &resolved.notes {
            config.events.note(note);
        }
        {
            let mut observations = self.observations();
            // Without one offer per host it is unknown which belongs to which.
            if resolved.offers.len() == resolved.hosts.len() {
                let of_hosts = resolved.hosts.iter().zip(&resolved.offers);
                observations.promised = of_hosts.map(|(host, offer)| (host.key.clone(), offer.gpus.clone())).collect();
            }
            (observations.hosts, observations.end) = (Some(resolved.hosts), resolved.end);
            observations.start = resolved.start.as_ref().map(|start| start.at);
        }
        let offers = match resolved.offers.is_empty() {
            true => config.provider.offers().await?,
            false => resolved.offers,
        };
        Ok(Found { offers, start: resolved.start, end: resolved.end, notes: resolved.notes })
    }

    /// Whether the provider creates hosts, so that a bad one can be replaced.
    pub(super) fn makes_hosts(&self) -> bool {
        self.config.provider.capability().hosts_vanish
    }

    /// The hosts of the spec, resolved if [`Self::resolve`] has run.
    pub(super) fn hosts(&self) -> Vec<HostRequest> {
        if let Some(hosts) = &self.observations().hosts {
            return hosts.clone();
        }
        self.spec_hosts()
    }

    fn spec_hosts(&self) -> Vec<HostRequest> {
        let entries = self.config.spec.hosts.iter().enumerate();
        entries.map(|(index, settings)| HostRequest::new(Key::host(index), settings.clone())).collect()
    }

    /// The resources of all hosts, without duplicates, in the order of acquisition.
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

    /// Observes the cluster's resources at the provider, adopted ones included.
    pub(super) async fn observe_resources(&self) -> Result<Observed> {
        let config = &self.config;
        let resources = config.provider.observe(&config.scope).await?;
        let mut observed = Observed { resources, ..Observed::default() };
        let is_resolved = self.observations().hosts.is_some();
        let adopted: Vec<ResourceRequest> = match is_resolved {
            true => self.requests()?.into_iter().filter(|request| request.adopted.is_some()).collect(),
            false => Vec::new(),
        };
        if !adopted.is_empty() {
            observed.resources.extend(config.provider.observe_adopted(&adopted).await?);
        }
        self.observations().last_observed = Some((tokio::time::Instant::now(), observed.resources.clone()));
        Ok(observed)
    }

    /// Why a host that the provider made is no longer there, as of its last answer; `None` if it is, or was not asked.
    pub(super) fn why_gone(&self, known: &ClusterState, host: &Key) -> Option<String> {
        let made = self.makes_hosts() && known.items.get(host).is_some_and(|item| item.id.is_some());
        let observations = self.observations();
        let (_, resources) = observations.last_observed.as_ref().filter(|_| made)?;
        match resources.iter().find(|found| found.key == *host) {
            None => Some("its provider no longer has its host".to_owned()),
            Some(found) if found.usable || found.coming => None,
            Some(found) if found.detail.is_empty() => Some("its host can no longer be used".to_owned()),
            Some(found) => Some(found.detail.clone()),
        }
    }

    /// Finds the places of all existing hosts, acquired or standing. Returns their keys.
    pub(super) async fn find_places(&self, known: &ClusterState, observed: &Observed) -> Result<Vec<Key>> {
        let mut places = BTreeMap::new();
        let wanted: BTreeSet<Key> = self.host_keys().into_iter().collect();
        let is_host = |key: &Key| wanted.is_empty() || wanted.contains(key);
        for found in observed.resources.iter().filter(|found| found.usable && is_host(&found.key)) {
            let noted = known.items.get(&found.key).is_some_and(|item| item.id.as_deref() == Some(found.id.as_str()));
            let place = match known.host(&found.key).and_then(|host| host.place.clone()).filter(|_| noted) {
                Some(place) => Ok(self.reached_now(known, &found.key, place)),
                None => self.config.provider.place(&self.config.scope.tag(&found.key), &found.id).await,
            };
            if let Ok(place) = place {
                places.insert(found.key.clone(), place);
            }
        }
        // Hosts that are unusable, or no longer in the spec, are cleaned as well.
        let removes = matches!(self.config.purpose, Purpose::Remove(_));
        let others = observed.resources.iter().filter(|found| removes && found.key.is_host());
        let others = others.map(|found| HostRequest::new(found.key.clone(), serde_json::Value::Null));
        for request in self.hosts().into_iter().chain(others) {
            if !places.contains_key(&request.key)
                && let Some(place) = self.config.provider.standing(&self.config.scope, &request)
            {
                places.insert(request.key, place);
            }
        }
        let keys = places.keys().cloned().collect();
        for (key, place) in &places {
            self.config.connector.know(key, place).await;
        }
        self.observations().places = places;
        Ok(keys)
    }

    /// A recorded place, reached as the spec says now.
    fn reached_now(&self, known: &ClusterState, host: &Key, before: HostPlace) -> HostPlace {
        let now = self.config.provider.reached(before.clone());
        let (HostPlace::Ssh { target: was, .. }, HostPlace::Ssh { target: is, .. }) = (&before, &now) else {
            return before;
        };
        if was == is {
            return before;
        }
        // Processes of another user, in that user's home, would be left behind.
        let runs = known.items.contains_key(&project_of(host)) && self.runtime().account() != Account::Root;
        if runs && was.user != is.user {
            self.config.events.warn(format!(
                "{}: its nodes run as {}: `gpucl stop` first, then another user can log in",
                host.display_name(),
                login(was)
            ));
            return before;
        }
        now
    }

    /// What the spec corrects of the way to hosts that are there, one sentence each.
    pub(super) fn corrected_ways(&self, known: &ClusterState) -> Vec<String> {
        let observations = self.observations();
        let corrected = observations.places.iter().filter_map(|(host, now)| {
            let before = known.host(host)?.place.as_ref().filter(|before| *before != now)?;
            let (HostPlace::Ssh { target: was, .. }, HostPlace::Ssh { target: is, .. }) = (before, now) else {
                return None;
            };
            let (name, is, was) = (host.display_name(), login(is), login(was));
            Some(format!("{name}: reached as {is}, as the spec says now; before: {was}"))
        });
        corrected.collect()
    }

    /// Acquires one resource and waits until it is usable.
    pub(super) async fn acquire(&self, key: &Key, request: &ResourceRequest, ledger: &Ledger) -> Result<()> {
        self.forget(key, ledger).await?;
        let acquired = self.config.provider.acquire(&self.config.scope.tag(key), request, ledger).await?;
        ledger.exists(key, &acquired.id).await?;
        self.wait_for(key, request, &acquired.id, ledger).await
    }

    /// Resolves the hosts of the spec again.
    pub(super) async fn choose(&self) -> Result<()> {
        let hosts = self.spec_hosts();
        let resolved = self.config.provider.resolve(&self.config.scope, hosts).await?;
        let mut observations = self.observations();
        (observations.hosts, observations.end) = (Some(resolved.hosts), resolved.end);
        Ok(())
    }

    /// The hourly price of the existing resources, as text.
    pub(super) fn hourly(&self, known: &ClusterState) -> Option<String> {
        let is_there = |key: &Key| known.items.get(key).is_some_and(|item| item.id.is_some());
        let requests = self.requests().unwrap_or_default();
        let prices = requests.iter().filter(|request| is_there(&request.key)).filter_map(|request| request.found.price);
        let sums = money::sums(prices.map(|price| price.0));
        (!sums.is_empty()).then(|| money::describe(&sums))
    }

    /// Waits until an existing resource is usable, and records a host's place.
    pub(super) async fn wait_for(&self, key: &Key, request: &ResourceRequest, id: &str, ledger: &Ledger) -> Result<()> {
        let tag = self.config.scope.tag(key);
        let doing = format!("wait for {}", key.display_name());
        self.config.cancel.unless_pressed(&doing, self.config.provider.wait_usable(&tag, request, id)).await?;
        if request.is_host {
            let place = self.config.provider.place(&tag, id).await?;
            self.note_place(key, &place, ledger)?;
            let resolved = self.observations().end;
            let end = match resolved {
                Some(end) => Some(end),
                // Known only now, such as the end of a batch job that has begun.
                None => self.recently_observed().await.and_then(|found| found.iter().filter_map(|one| one.until).min()),
            };
            end.map_or(Ok(()), |end| note_end(key, end, ledger))?;
            self.config.connector.know(key, &place).await;
            self.observations().places.insert(key.clone(), place);
        }
        Ok(())
    }

    /// Runs `work` on a host, and fails as soon as the provider no longer has the host: its reservation may end or
    /// someone may delete it, and then it would never answer.
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
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            // A failed query does not mean that the host is gone.
            let Some(found) = self.recently_observed().await else { continue };
            let why = match found.iter().find(|found| found.key == *host) {
                Some(found) if found.usable || found.coming => continue,
                Some(found) => found.detail.clone(),
                None => "its provider no longer has it".to_owned(),
            };
            return Error::new(ErrorKind::Provider, format!("go on with {}", host.display_name())).because(why);
        }
    }

    /// The provider's resources, at most [`CHECK_EVERY`] old: one query serves all hosts.
    async fn recently_observed(&self) -> Option<Vec<ObservedResource>> {
        let _turn = self.asking.lock().await;
        let fresh = |at: &tokio::time::Instant| at.elapsed() < CHECK_EVERY;
        if let Some((_, found)) = self.observations().last_observed.as_ref().filter(|(at, _)| fresh(at)) {
            return Some(found.clone());
        }
        let found = self.config.provider.observe(&self.config.scope).await.ok()?;
        self.observations().last_observed = Some((tokio::time::Instant::now(), found.clone()));
        Some(found)
    }

    pub(super) fn note_place(&self, key: &Key, place: &HostPlace, ledger: &Ledger) -> Result<()> {
        ledger.note_host(key, |host| host.place = Some(place.clone()))
    }

    /// Records which resources are adopted, and when they end.
    pub(super) fn note_resources(&self, observed: &Observed, ledger: &Ledger) -> Result<()> {
        let known = ledger.state();
        for found in &observed.resources {
            if found.adopted && known.items.get(&found.key).is_some_and(|item| !item.adopted) {
                ledger.write(Record::Adopted { key: found.key.clone() })?;
            }
        }
        // What the spec corrects of the way to a host is recorded, for commands that have no spec.
        self.corrected_ways(&known).iter().for_each(|note| self.config.events.note(note));
        let places = self.observations().places.clone();
        for (host, place) in places {
            let before = known.host(&host).and_then(|host| host.place.as_ref());
            if before.is_some_and(|before| *before != place) {
                self.note_place(&host, &place, ledger)?;
            }
        }
        match end_of(observed) {
            Some(end) => self.host_keys().iter().try_for_each(|host| note_end(host, end, ledger)),
            None => Ok(()),
        }
    }
}

/// The earliest end of the observed resources.
pub(super) fn end_of(observed: &Observed) -> Option<Timestamp> {
    observed.resources.iter().filter_map(|found| found.until).min()
}

/// Who logs in where, in words.
fn login(target: &SshTarget) -> String {
    let user = target.user.as_deref().unwrap_or("the user of your ssh configuration");
    let own = format!("{user} at port {}", target.port.unwrap_or(22));
    match target.relay.as_ref().and_then(|relay| relay.login.as_ref()) {
        Some(through) => format!("{own} through {}, there as {}", through.node, login(through)),
        None => own,
    }
}

/// Records when a host's reservation ends.
fn note_end(host: &Key, end: Timestamp, ledger: &Ledger) -> Result<()> {
    ledger.note_host(host, |host| host.until = Some(end))
}
