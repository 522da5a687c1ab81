//! `gc`: deletes resources of clusters that have no state on this machine. The owner in a tag shows what is ours.
//!
//! Clusters with state are left to `down`, and standalone leases go only on request. Without an owner file nothing can
//! be recognized as ours: then only resources named by id go, and only if our user created them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::lease;
use crate::cluster::settings::Settings;
use crate::cluster::sites::is_at;
use crate::error::{Error, ErrorKind, Result};
use crate::name::{ClusterName, Owner, Tag};
use crate::provider::{ObservedResource, Provider};
use crate::spec::Spec;
use crate::state::{Lock, Store};

/// How many resources of one kind are deleted concurrently.
const AT_ONCE: usize = 8;

/// The options of `gc`.
#[derive(Debug, Clone, Default)]
pub struct GcOptions {
    /// Also delete standalone leases.
    pub leases: bool,
    /// Delete only the resources with these ids; if empty, everything that is ours.
    pub ids: Vec<String>,
}

/// Whether a resource is deleted, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its cluster has no state on this machine: it is deleted.
    Left,
    /// It was named by id: it is deleted.
    Named,
    /// Its cluster has state on this machine: it is left to `down`.
    HasState,
    /// It may still hold processes or files of ours, which only `down` removes.
    NeedsDown,
    /// A standalone lease: it stays unless leases are requested.
    Lease,
    /// Whether it is ours is unknown: this machine has no owner file.
    Unknown,
}

impl Standing {
    /// Whether it is deleted.
    pub fn goes(self) -> bool {
        matches!(self, Self::Left | Self::Named)
    }
}

/// A tagged resource at a provider.
#[derive(Debug, Clone)]
pub struct TaggedResource {
    /// The tag that the resource carries.
    pub tag: Tag,
    /// The resource as the provider lists it.
    pub resource: ObservedResource,
    /// Whether it is deleted, and why.
    pub standing: Standing,
}

impl TaggedResource {
    /// Describes it: `server host-0 of demo (3f2a…)`.
    pub fn describe(&self) -> String {
        let key = self.tag.key.display_name();
        format!("{} {key} of {} ({})", self.resource.kind.0, self.tag.cluster, self.resource.id)
    }
}

/// A `gc` run at one provider.
pub struct Gc<'a> {
    /// The settings of the command.
    pub settings: &'a Settings,
    /// The user's owner; `None` if there is no owner file.
    pub owner: Option<Owner>,
    /// The provider's name.
    pub name: String,
    /// The site, if the provider was opened at one.
    pub site: Option<String>,
    /// The provider to clean.
    pub provider: &'a dyn Provider,
    /// What to delete.
    pub options: GcOptions,
}

impl Gc<'_> {
    /// Lists what is there, in the order of creation. Read-only.
    pub async fn find(&self) -> Result<Vec<TaggedResource>> {
        let ids = &self.options.ids;
        let mut listed = match &self.owner {
            Some(owner) => self.provider.owned(owner).await?,
            None => Vec::new(),
        };
        if self.owner.is_none() || !ids.is_empty() {
            let is_new = |listed: &[(Tag, ObservedResource)], found: &ObservedResource| {
                !listed.iter().any(|(_, known)| known.kind == found.kind && known.id == found.id)
            };
            for (tag, found) in self.provider.tagged().await? {
                if is_new(&listed, &found) {
                    listed.push((tag, found));
                }
            }
        }
        if !ids.is_empty() {
            listed.retain(|(_, found)| ids.contains(&found.id));
        }
        let found =
            listed.into_iter().map(|(tag, resource)| TaggedResource { standing: self.standing(&tag), tag, resource });
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

    /// Whether a cluster of this name, provider and site has state here. State that cannot be read counts, and so does
    /// one that names no site.
    fn has_state(&self, cluster: &ClusterName) -> bool {
        let is_here = |spec: &Spec| {
            spec.provider.name() == self.name && self.site.as_ref().is_none_or(|site| is_at(spec, site).unwrap_or(true))
        };
        match Store::open(&self.settings.paths, cluster) {
            Ok(None) => false,
            Ok(Some(store)) => store.state().spec.as_ref().is_none_or(is_here),
            Err(_) => true,
        }
    }

    /// Deletes in reverse order of creation, resources of one kind concurrently. Returns the failures.
    pub async fn delete(&self, found: &[TaggedResource]) -> Vec<(TaggedResource, Error)> {
        let mut failed = Vec::new();
        let mut locks: BTreeMap<ClusterName, Lock> = BTreeMap::new();
        let mut going: Vec<&TaggedResource> = Vec::new();
        for one in found.iter().filter(|one| one.standing.goes()) {
            match self.hold(one, &mut locks) {
                Ok(()) => going.push(one),
                Err(error) => failed.push((one.clone(), error)),
            }
        }
        let mut rest = going.as_slice();
        // In reverse order of creation.
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

    /// Locks the cluster while its resources are deleted, and checks again that it has no state.
    fn hold(&self, one: &TaggedResource, locks: &mut BTreeMap<ClusterName, Lock>) -> Result<()> {
        let cluster = &one.tag.cluster;
        if self.owner.as_ref() != Some(&one.tag.owner) || cluster.is_reserved() {
            return Ok(());
        }
        if !locks.contains_key(cluster) {
            locks.insert(cluster.clone(), Lock::take(&self.settings.paths, cluster, "gc")?);
        }
        if self.has_state(cluster) {
            return Err(Error::new(ErrorKind::Locked, format!("delete {}", one.describe()))
                .because("its cluster now has state on this machine")
                .hint(format!("gpucl down -c {cluster}")));
        }
        Ok(())
    }

    async fn remove(&self, one: &TaggedResource) -> Result<()> {
        match self.provider.reservations() {
            // Standalone leases have their own journal.
            Some(reservations) if one.tag.cluster.is_reserved() => {
                lease::delete(self.settings, reservations, &one.resource.id).await
            }
            _ => {
                let scope = crate::name::Scope { owner: one.tag.owner.clone(), cluster: one.tag.cluster.clone() };
                self.provider.release(&scope, &one.resource).await
            }
        }
    }

    /// Lists what is still there after the consistency delay, though it should be gone.
    pub async fn left(&self) -> Result<Vec<TaggedResource>> {
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
