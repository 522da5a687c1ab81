//! `gc`: what is left at a provider of clusters that this machine knows nothing of. It needs no state: what carries our owner's tag is ours.
//!
//! What has state here is left to `down`, and leases of their own go only when they are meant. Without an owner nothing is known to be
//! ours: then only what a person names by its id goes, and only if our user made it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::{Settings, lease};
use crate::error::{Error, ErrorKind, Result};
use crate::name::{ClusterName, Owner, Tag};
use crate::provider::{ObservedResource, Provider};
use crate::state::{Lock, Store};

/// How many things of one kind are deleted at the same time.
const AT_ONCE: usize = 8;

/// What is meant.
#[derive(Debug, Clone, Default)]
pub struct GcOptions {
    /// Leases that belong to no cluster as well.
    pub leases: bool,
    /// Exactly these, and nothing else; all that is ours when empty.
    pub ids: Vec<String>,
}

/// What becomes of something that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nothing on this machine knows of its cluster: it is deleted.
    Left,
    /// It was named by its id: it is deleted.
    Named,
    /// Its cluster has state on this machine: `down` removes it.
    HasState,
    /// Something of ours may run or lie on it, which only `down` ends and cleans.
    NeedsDown,
    /// A lease of its own: it stays unless leases are meant.
    Lease,
    /// Whether it is ours cannot be told: there is no owner on this machine.
    Unknown,
}

impl Standing {
    /// It is deleted.
    pub fn goes(self) -> bool {
        matches!(self, Self::Left | Self::Named)
    }
}

/// Something with a tag at a provider.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its tag.
    pub tag: Tag,
    /// What it is.
    pub resource: ObservedResource,
    /// What becomes of it.
    pub standing: Standing,
}

impl Found {
    /// In a few words: `server host-0 of demo (3f2a…)`.
    pub fn describe(&self) -> String {
        let key = self.tag.key.display_name();
        format!("{} {key} of {} ({})", self.resource.kind.0, self.tag.cluster, self.resource.id)
    }
}

/// One provider, and who asks it.
pub struct Gc<'a> {
    /// The user's folders, and who is told.
    pub settings: &'a Settings,
    /// The owner of this machine's user; `None` when its file is not there.
    pub owner: Option<Owner>,
    /// The provider's name.
    pub name: String,
    /// The provider.
    pub provider: &'a dyn Provider,
    /// What is meant.
    pub options: GcOptions,
}

impl Gc<'_> {
    /// What is there, in the order in which it was made. Read-only.
    pub async fn find(&self) -> Result<Vec<Found>> {
        let ids = &self.options.ids;
        let mut seen = match &self.owner {
            Some(owner) => self.provider.owned(owner).await?,
            None => Vec::new(),
        };
        if self.owner.is_none() || !ids.is_empty() {
            let is_new = |seen: &[(Tag, ObservedResource)], found: &ObservedResource| {
                !seen.iter().any(|(_, known)| known.kind == found.kind && known.id == found.id)
            };
            for (tag, found) in self.provider.tagged().await? {
                if is_new(&seen, &found) {
                    seen.push((tag, found));
                }
            }
        }
        if !ids.is_empty() {
            seen.retain(|(_, found)| ids.contains(&found.id));
        }
        let found = seen.into_iter().map(|(tag, resource)| Found { standing: self.standing(&tag), tag, resource });
        Ok(found.collect())
    }

    fn standing(&self, tag: &Tag) -> Standing {
        let is_ours = self.owner.as_ref() == Some(&tag.owner);
        let is_named = !self.options.ids.is_empty();
        if is_ours && tag.cluster.is_reserved() {
            return match (is_named, self.options.leases) {
                (true, _) => Standing::Named,
                (false, true) => Standing::Left,
                (false, false) => Standing::Lease,
            };
        }
        if is_ours && self.has_state(&tag.cluster) {
            return Standing::HasState;
        }
        match (is_named, is_ours) {
            _ if !self.provider.capability().hosts_vanish => Standing::NeedsDown,
            (true, _) => Standing::Named,
            (false, true) => Standing::Left,
            (false, false) => Standing::Unknown,
        }
    }

    /// A cluster of this name and provider is known here. What cannot be read is known.
    fn has_state(&self, cluster: &ClusterName) -> bool {
        match Store::open(&self.settings.paths, cluster) {
            Ok(None) => false,
            Ok(Some(store)) => store.state().spec.as_ref().is_none_or(|spec| spec.provider.name() == self.name),
            Err(_) => true,
        }
    }

    /// Deletes what goes: what needs others before them, what is of one kind side by side. Hands back what could not be, and why.
    pub async fn delete(&self, found: &[Found]) -> Vec<(Found, Error)> {
        let mut failed = Vec::new();
        let mut locks: BTreeMap<ClusterName, Lock> = BTreeMap::new();
        let mut going: Vec<&Found> = Vec::new();
        for one in found.iter().filter(|one| one.standing.goes()) {
            match self.hold(one, &mut locks) {
                Ok(()) => going.push(one),
                Err(error) => failed.push((one.clone(), error)),
            }
        }
        let mut rest = going.as_slice();
        // The reverse of the order in which it was made.
        while let Some(last) = rest.last() {
            let from = rest.iter().rposition(|one| one.resource.kind != last.resource.kind).map_or(0, |at| at + 1);
            let (before, together) = rest.split_at(from);
            let mut results = Vec::new();
            for some in together.chunks(AT_ONCE) {
                let mut running = FuturesUnordered::new();
                for one in some {
                    running.push(async { (*one, self.remove(one).await) });
                }
                while let Some(ended) = running.next().await {
                    results.push(ended);
                }
            }
            for (one, result) in results {
                match result {
                    Ok(()) => self.settings.events.note(format!("deleted: {}", one.describe())),
                    Err(error) => failed.push((one.clone(), error)),
                }
            }
            rest = before;
        }
        failed
    }

    /// Keeps `up` of the same cluster away while its things are deleted, and looks once more that nothing knows of it.
    fn hold(&self, one: &Found, locks: &mut BTreeMap<ClusterName, Lock>) -> Result<()> {
        let cluster = &one.tag.cluster;
        if self.owner.as_ref() != Some(&one.tag.owner) || cluster.is_reserved() {
            return Ok(());
        }
        if !locks.contains_key(cluster) {
            locks.insert(cluster.clone(), Lock::take(&self.settings.paths, cluster, "gc")?);
        }
        if self.has_state(cluster) {
            return Err(Error::new(ErrorKind::Locked, format!("delete {}", one.describe()))
                .because("its cluster has state here since a moment ago")
                .hint(format!("gpucl down -c {cluster}")));
        }
        Ok(())
    }

    async fn remove(&self, one: &Found) -> Result<()> {
        match self.provider.reservations() {
            // A lease of its own stands in a journal of its own.
            Some(reservations) if one.tag.cluster.is_reserved() => {
                lease::delete(self.settings, reservations, &one.resource.id).await
            }
            _ => {
                let scope = crate::name::Scope { owner: one.tag.owner.clone(), cluster: one.tag.cluster.clone() };
                self.provider.release(&scope, &one.resource).await
            }
        }
    }

    /// What should be gone and is seen still, once the provider's answers cannot be late any more.
    pub async fn left(&self) -> Result<Vec<Found>> {
        let delay = self.provider.capability().consistency_delay;
        let begun = Instant::now();
        loop {
            let is_last = begun.elapsed() >= delay;
            let mut found = self.find().await?;
            found.retain(|one| one.standing.goes());
            if found.is_empty() || is_last {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(500).min(delay / 4)).await;
        }
    }
}
