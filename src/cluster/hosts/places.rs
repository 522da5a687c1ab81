//! Where the hosts of a cluster are: found at their provider or recorded before, and reached as the spec says now.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::layout::project_of;
use super::on_hosts::OnHosts;
use super::supply::earliest_end;
use crate::engine::Ledger;
use crate::error::Result;
use crate::host::{Account, SshTarget};
use crate::name::Key;
use crate::plan::Observed;
use crate::provider::{HostPlace, HostRequest};
use crate::state::{ClusterState, Record};

impl OnHosts {
    /// Finds the places of all existing hosts, acquired or standing. Returns their keys.
    pub(super) async fn find_places(&self, known: &ClusterState, observed: &Observed) -> Vec<Key> {
        let mut places = BTreeMap::new();
        let wanted: BTreeSet<&Key> = self.hosts().iter().collect();
        let is_host = |key: &Key| wanted.is_empty() || wanted.contains(key);
        for found in observed.resources.iter().filter(|found| found.is_usable() && is_host(&found.key)) {
            let noted = known.items.get(&found.key).is_some_and(|item| item.id.as_deref() == Some(found.id.as_str()));
            let place = match known.host(&found.key).and_then(|host| host.place.clone()).filter(|_| noted) {
                Some(place) => Ok(self.reached_now(known, &found.key, place)),
                None => self.supply.place(&found.key, &found.id).await,
            };
            if let Ok(place) = place {
                places.insert(found.key.clone(), place);
            }
        }
        // Hosts that are unusable, or no longer in the spec, are cleaned as well.
        let others = observed.resources.iter().filter(|found| self.removal.is_some() && found.key.is_host());
        let others = others.map(|found| HostRequest::new(found.key.clone(), serde_json::Value::Null));
        for request in self.supply.hosts().into_iter().chain(others) {
            if !places.contains_key(&request.key)
                && let Some(place) = self.supply.standing(&request)
            {
                places.insert(request.key, place);
            }
        }
        let keys = places.keys().cloned().collect();
        self.fleet.found_all(places).await;
        keys
    }

    /// Takes the places of the hosts from the state; asks the provider for those that are not there.
    pub(super) async fn recall_places(&self, known: &ClusterState) -> Result<()> {
        let place = |host: &Key| Some((host.clone(), known.host(host)?.place.clone()?));
        match self.hosts().iter().map(place).collect::<Option<BTreeMap<_, _>>>() {
            Some(places) => self.fleet.found_all(places).await,
            None => {
                let observed = self.supply.observe().await?;
                self.find_places(known, &observed).await;
            }
        }
        Ok(())
    }

    /// A recorded place, reached as the spec says now.
    fn reached_now(&self, known: &ClusterState, host: &Key, before: HostPlace) -> HostPlace {
        let now = self.supply.provider.reached(before.clone());
        let (HostPlace::Ssh { target: was, .. }, HostPlace::Ssh { target: is, .. }) = (&before, &now) else {
            return before;
        };
        if was == is {
            return before;
        }
        // Processes of another user, in that user's home, would be left behind.
        let runs = known.items.contains_key(&project_of(host)) && self.runtime().account() != Account::Root;
        if runs && was.user != is.user {
            self.events.warn(format!(
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
        let places = self.fleet.places();
        let corrected = places.iter().filter_map(|(host, now)| {
            let before = known.host(host)?.place.as_ref().filter(|before| *before != now)?;
            let (HostPlace::Ssh { target: was, .. }, HostPlace::Ssh { target: is, .. }) = (before, now) else {
                return None;
            };
            let (name, is, was) = (host.display_name(), login(is), login(was));
            Some(format!("{name}: reached as {is}, as the spec says now; before: {was}"))
        });
        corrected.collect()
    }

    /// Records the place and the end of a host that was just acquired.
    pub(super) async fn note_acquired(&self, host: &Key, id: &str, ledger: &Ledger) -> Result<()> {
        let place = self.supply.place(host, id).await?;
        note_place(host, &place, ledger)?;
        if let Some(end) = self.supply.end_of_acquired().await {
            note_end(host, end, ledger)?;
        }
        self.fleet.found(host, place).await;
        Ok(())
    }

    /// Records which resources are adopted, how hosts are reached, and when they end.
    pub(super) fn note_resources(&self, observed: &Observed, ledger: &Ledger) -> Result<()> {
        let known = ledger.state();
        for found in &observed.resources {
            if found.adopted && known.items.get(&found.key).is_some_and(|item| !item.adopted) {
                ledger.write(Record::Adopted { key: found.key.clone() })?;
            }
        }
        // What the spec corrects of the way to a host is recorded, for commands that have no spec.
        for (host, place) in self.fleet.places() {
            let before = known.host(&host).and_then(|host| host.place.as_ref());
            if before.is_some_and(|before| *before != place) {
                note_place(&host, &place, ledger)?;
            }
        }
        match earliest_end(&observed.resources) {
            Some(end) => self.hosts().iter().try_for_each(|host| note_end(host, end, ledger)),
            None => Ok(()),
        }
    }
}

/// Records where a host is.
pub(super) fn note_place(host: &Key, place: &HostPlace, ledger: &Ledger) -> Result<()> {
    ledger.note_host(host, |host| host.place = Some(place.clone()))
}

/// Records when a host's reservation ends.
fn note_end(host: &Key, end: Timestamp, ledger: &Ledger) -> Result<()> {
    ledger.note_host(host, |host| host.until = Some(end))
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
