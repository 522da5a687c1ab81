//! The resources of a cluster at its provider: what the spec leaves open is resolved before the plan, then they are
//! acquired, waited for, and found again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::layout::Addresses;
use crate::cluster::substrate::Resolution;
use crate::engine::Ledger;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Bus;
use crate::money;
use crate::name::{Key, Scope};
use crate::plan::Observed;
use crate::provider::{
    GpuOffer, HostPlace, HostRequest, ObservedResource, Provider, Resolved, ResourceRequest, ResourceState,
};
use crate::spec::Spec;
use crate::state::ClusterState;

/// How often a provider is asked whether a host still exists while an operation runs on it.
const CHECK_EVERY: Duration = Duration::from_secs(15);

/// What the provider last chose for what the spec leaves open.
#[derive(Debug, Default)]
struct Choice {
    /// `None` until it was asked.
    hosts: Option<Vec<HostRequest>>,
    /// The GPUs that it promises for each host.
    promised: BTreeMap<Key, Vec<GpuOffer>>,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

/// The resources of one cluster.
pub(super) struct Supply {
    pub(super) provider: Box<dyn Provider>,
    scope: Scope,
    /// The hosts as the spec has them.
    hosts: Vec<HostRequest>,
    events: Bus,
    choice: Mutex<Choice>,
    /// The provider's last answer, and when it came.
    latest: Mutex<Option<(Instant, Vec<ObservedResource>)>>,
    /// Held while the provider is asked: one query serves all hosts.
    asking: tokio::sync::Mutex<()>,
}

impl Supply {
    /// The resources of a spec; nothing is asked yet.
    pub(super) fn new(provider: Box<dyn Provider>, scope: Scope, spec: &Spec, events: Bus) -> Self {
        let entries = spec.hosts.iter().enumerate();
        let hosts = entries.map(|(index, settings)| HostRequest::new(Key::host(index), settings.clone())).collect();
        Self {
            provider,
            scope,
            hosts,
            events,
            choice: Mutex::default(),
            latest: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    fn choice(&self) -> MutexGuard<'_, Choice> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latest(&self) -> MutexGuard<'_, Option<(Instant, Vec<ObservedResource>)>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves what the spec leaves open, and reports the provider's notes.
    pub(super) async fn resolve(&self) -> Result<Resolution> {
        let Resolved { hosts, offers, start, end, notes } = self.ask_for_choice().await?;
        notes.iter().for_each(|note| self.events.note(note));
        {
            let mut choice = self.choice();
            // Without one offer per host it is unknown which belongs to which.
            if offers.len() == hosts.len() {
                let of_hosts = hosts.iter().zip(&offers);
                choice.promised = of_hosts.map(|(host, offer)| (host.key.clone(), offer.gpus.clone())).collect();
            }
            (choice.hosts, choice.end) = (Some(hosts), end);
            choice.start = start.as_ref().map(|start| start.at);
        }
        let offers = if offers.is_empty() { self.provider.offers().await? } else { offers };
        Ok(Resolution { offers, start, end, notes })
    }

    /// Resolves the hosts once more, after a refusal.
    pub(super) async fn resolve_hosts_again(&self) -> Result<()> {
        let Resolved { hosts, end, .. } = self.ask_for_choice().await?;
        let mut choice = self.choice();
        (choice.hosts, choice.end) = (Some(hosts), end);
        Ok(())
    }

    async fn ask_for_choice(&self) -> Result<Resolved> {
        self.provider.resolve(&self.scope, self.hosts.clone()).await
    }

    /// The GPUs that the provider promised for each host.
    pub(super) fn promised(&self) -> BTreeMap<Key, Vec<GpuOffer>> {
        self.choice().promised.clone()
    }

    /// When the hosts begin to cost, if that is later than now.
    pub(super) fn costs_from(&self) -> Option<Timestamp> {
        self.choice().start.filter(|start| *start > Timestamp::now())
    }

    /// When the hosts end, as the provider last chose them.
    pub(super) fn end(&self) -> Option<Timestamp> {
        self.choice().end
    }

    /// Whether the provider creates hosts, so that a bad one can be replaced.
    pub(super) fn makes_hosts(&self) -> bool {
        self.provider.capability().hosts_vanish
    }

    /// The hosts, as last resolved, or else as the spec has them.
    pub(super) fn hosts(&self) -> Vec<HostRequest> {
        self.choice().hosts.clone().unwrap_or_else(|| self.hosts.clone())
    }

    /// The place of a host that exists without being acquired.
    pub(super) fn standing(&self, host: &HostRequest) -> Option<HostPlace> {
        self.provider.standing(&self.scope, host)
    }

    /// When hosts learn each other's addresses.
    pub(super) fn addresses(&self) -> Addresses {
        match self.hosts().iter().all(|host| self.standing(host).is_some()) {
            true => Addresses::BeforePreparation,
            false => Addresses::OnceCreated,
        }
    }

    /// The resources of all hosts, without duplicates, in the order of acquisition.
    pub(super) fn requests(&self) -> Result<Vec<ResourceRequest>> {
        let mut requests: Vec<ResourceRequest> = Vec::new();
        for host in self.hosts() {
            for request in self.provider.expand(&self.scope, &host)? {
                if requests.iter().all(|known| known.key != request.key) {
                    requests.push(request);
                }
            }
        }
        Ok(requests)
    }

    /// The hourly price of the existing resources, as text.
    pub(super) fn hourly(&self, known: &ClusterState) -> Option<String> {
        let is_there = |key: &Key| known.items.get(key).is_some_and(|item| item.id.is_some());
        let requests = self.requests().unwrap_or_default();
        let prices = requests.iter().filter(|request| is_there(&request.key)).filter_map(|request| request.found.price);
        let sums = money::sums(prices.map(|price| price.0));
        (!sums.is_empty()).then(|| money::describe(&sums))
    }

    /// Observes the cluster's resources at the provider, adopted ones included once the hosts are resolved.
    pub(super) async fn observe(&self) -> Result<Observed> {
        let mut resources = self.provider.observe(&self.scope).await?;
        let is_resolved = self.choice().hosts.is_some();
        let adopted: Vec<ResourceRequest> = match is_resolved {
            true => self.requests()?.into_iter().filter(|request| request.adopted.is_some()).collect(),
            false => Vec::new(),
        };
        if !adopted.is_empty() {
            resources.extend(self.provider.observe_adopted(&adopted).await?);
        }
        *self.latest() = Some((Instant::now(), resources.clone()));
        Ok(Observed { resources, ..Observed::default() })
    }

    /// Why a host that the provider made is no longer there, as of its last answer; `None` if it is, or was not asked.
    pub(super) fn why_gone(&self, known: &ClusterState, host: &Key) -> Option<String> {
        let made = self.makes_hosts() && known.items.get(host).is_some_and(|item| item.id.is_some());
        let latest = self.latest();
        let (_, resources) = latest.as_ref().filter(|_| made)?;
        match resources.iter().find(|found| found.key == *host) {
            None => Some("its provider no longer has its host".to_owned()),
            Some(found) if found.state != ResourceState::Unusable => None,
            Some(found) if found.detail.is_empty() => Some("its host can no longer be used".to_owned()),
            Some(found) => Some(found.detail.clone()),
        }
    }

    /// Acquires one resource and returns its id, which the provider has recorded by then.
    pub(super) async fn acquire(&self, request: &ResourceRequest, ledger: &Ledger) -> Result<String> {
        *self.latest() = None;
        Ok(self.provider.acquire(&self.scope.tag(&request.key), request, ledger).await?.id)
    }

    /// Waits until an existing resource is usable.
    pub(super) async fn wait_usable(&self, request: &ResourceRequest, id: &str) -> Result<()> {
        self.provider.wait_usable(&self.scope.tag(&request.key), request, id).await
    }

    /// Asks the provider where an acquired host is.
    pub(super) async fn place(&self, key: &Key, id: &str) -> Result<HostPlace> {
        self.provider.place(&self.scope.tag(key), id).await
    }

    /// Releases a resource.
    pub(super) async fn release(&self, resource: &ObservedResource) -> Result<()> {
        self.provider.release(&self.scope, resource).await
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
                Some(found) if found.state != ResourceState::Unusable => continue,
                Some(found) => found.detail.clone(),
                None => "its provider no longer has it".to_owned(),
            };
            return Error::new(ErrorKind::Provider, format!("go on with {}", host.display_name())).because(why);
        }
    }

    /// The provider's resources, at most [`CHECK_EVERY`] old: one query serves all hosts.
    async fn recently_observed(&self) -> Option<Vec<ObservedResource>> {
        let _turn = self.asking.lock().await;
        let fresh = |at: &Instant| at.elapsed() < CHECK_EVERY;
        if let Some((_, found)) = self.latest().as_ref().filter(|(at, _)| fresh(at)) {
            return Some(found.clone());
        }
        let found = self.provider.observe(&self.scope).await.ok()?;
        *self.latest() = Some((Instant::now(), found.clone()));
        Some(found)
    }

    /// When a host that was just acquired ends, if the provider says so: some know it only then, such as the end of a
    /// batch job that has begun.
    pub(super) async fn end_of_acquired(&self) -> Option<Timestamp> {
        match self.end() {
            Some(end) => Some(end),
            None => self.recently_observed().await.and_then(|found| earliest_end(&found)),
        }
    }
}

/// The earliest end of these resources.
pub(super) fn earliest_end(resources: &[ObservedResource]) -> Option<Timestamp> {
    resources.iter().filter_map(|found| found.until).min()
}
