//! The state of a cluster: the sum of the journal's records.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::item::{ItemKind, ItemState, Priced};
use super::notes::{HostNotes, LeaseNotes, Notes, Pages, PlatformNotes, ProjectNotes};
use crate::money::{HourlyPrice, Money};
use crate::name::{ClusterName, Key, Owner, Scope};
use crate::provider::HostPlace;
use crate::spec::{NodeSpec, Spec};

/// One resource or project of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// What the item is.
    #[serde(flatten)]
    pub kind: ItemKind,
    /// How far the item has come.
    pub state: ItemState,
    /// The provider's id, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The digest of the request; a different one means that the spec has changed.
    pub digest: String,
    /// When it was requested.
    pub since: jiff::Timestamp,
    /// When its id was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exists_since: Option<jiff::Timestamp>,
    /// Its price while it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priced: Option<Priced>,
    /// Adopted: it was not created for the cluster, and is not released with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// Further notes, such as its ports.
    #[serde(default, skip_serializing_if = "Notes::is_none")]
    pub notes: Notes,
}

/// The known state of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterState {
    /// The cluster's name.
    pub name: ClusterName,
    /// Its owner.
    pub owner: Owner,
    /// When it was first requested.
    pub created: jiff::Timestamp,
    /// The spec of the last `up`.
    #[serde(default)]
    pub spec: Option<Spec>,
    /// The spec that runs, if a later `up` took another one and failed before it changed anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployed: Option<Box<Spec>>,
    /// The spec's file.
    #[serde(default)]
    pub spec_path: Option<String>,
    /// When all checks last passed, unless the cluster was changed since.
    #[serde(default)]
    pub ready_since: Option<jiff::Timestamp>,
    /// When its first host, or first resource with a price, was acquired: its deadline counts from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<jiff::Timestamp>,
    /// The cost of items that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<Money>,
    /// Its resources and projects.
    #[serde(default)]
    pub items: BTreeMap<Key, Item>,
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// `up` has accepted a spec.
    SpecTaken {
        /// The accepted spec.
        spec: Box<Spec>,
        /// The spec's file.
        path: Option<String>,
    },
    /// The call that creates an item is about to be sent.
    Requested {
        /// The item's key.
        key: Key,
        /// The kind of the item.
        #[serde(flatten)]
        kind: ItemKind,
        /// The digest of the request.
        digest: String,
    },
    /// A requested item has a price.
    Priced {
        /// The item's key.
        key: Key,
        /// The price per hour.
        price: HourlyPrice,
        /// When the cost begins, if not when its id is recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<jiff::Timestamp>,
    },
    /// An item exists.
    Exists {
        /// The item's key.
        key: Key,
        /// The provider's id.
        id: String,
    },
    /// An item is adopted: it was not created for the cluster, and is not released with it.
    Adopted {
        /// The item's key.
        key: Key,
    },
    /// The notes of an item have changed.
    Noted {
        /// The item's key.
        key: Key,
        /// The new notes, complete.
        notes: Notes,
    },
    /// The call that changes an item in place is about to be sent.
    Changing {
        /// The item's key.
        key: Key,
    },
    /// An item is usable.
    Ready {
        /// The item's key.
        key: Key,
    },
    /// The call that removes an item is about to be sent.
    Releasing {
        /// The item's key.
        key: Key,
    },
    /// An item is gone.
    Gone {
        /// The item's key.
        key: Key,
    },
    /// All checks have passed.
    ClusterReady,
}

impl ClusterState {
    /// Creates the state of a new cluster.
    pub fn new(scope: &Scope, now: jiff::Timestamp) -> Self {
        Self {
            name: scope.cluster.clone(),
            owner: scope.owner.clone(),
            created: now,
            spec: None,
            deployed: None,
            spec_path: None,
            ready_since: None,
            begun: None,
            spent: Vec::new(),
            items: BTreeMap::new(),
        }
    }

    /// The owner and name of the cluster.
    pub fn scope(&self) -> Scope {
        Scope { owner: self.owner.clone(), cluster: self.name.clone() }
    }

    /// The notes of a host; `None` if it was not requested.
    pub fn host(&self, key: &Key) -> Option<&HostNotes> {
        match &self.items.get(key)?.notes {
            Notes::Host(host) => Some(host),
            _ => None,
        }
    }

    /// The notes of all requested hosts.
    pub fn hosts(&self) -> impl Iterator<Item = (&Key, &HostNotes)> {
        self.items.keys().filter_map(|key| Some((key, self.host(key)?)))
    }

    /// Whether all its hosts are this machine.
    pub fn is_here(&self) -> bool {
        let mut places = self.hosts().map(|(_, host)| &host.place).peekable();
        places.peek().is_some() && places.all(|place| matches!(place, Some(HostPlace::Local { .. })))
    }

    /// The earliest end of its hosts' reservations.
    pub fn ends(&self) -> Option<jiff::Timestamp> {
        self.hosts().filter_map(|(_, host)| host.until).min()
    }

    /// The notes of a project.
    pub fn project(&self, key: &Key) -> Option<&ProjectNotes> {
        match &self.items.get(key)?.notes {
            Notes::Project(project) => Some(project),
            _ => None,
        }
    }

    /// The notes of all projects.
    pub fn projects(&self) -> impl Iterator<Item = (&Key, &ProjectNotes)> {
        self.items.keys().filter_map(|key| Some((key, self.project(key)?)))
    }

    /// The local ports of its pages, once they are chosen.
    pub fn pages(&self) -> Option<&Pages> {
        match self.platform() {
            Some(platform) => Some(&platform.pages),
            None => self.project(&Key::project(0))?.pages.as_ref(),
        }
    }

    /// The notes of a cluster on a platform; `None` for one on hosts, or before it is made.
    pub fn platform(&self) -> Option<&PlatformNotes> {
        self.items.values().find_map(|item| match &item.notes {
            Notes::Platform(platform) => Some(platform.as_ref()),
            _ => None,
        })
    }

    /// The notes of a standalone lease.
    pub fn lease(&self, key: &Key) -> Option<&LeaseNotes> {
        match &self.items.get(key)?.notes {
            Notes::Lease(lease) => Some(lease),
            _ => None,
        }
    }

    /// The nodes of the last deployments, the head first.
    pub fn started_nodes(&self) -> Vec<NodeSpec> {
        let mut nodes: Vec<NodeSpec> = self.projects().flat_map(|(_, project)| project.nodes.clone()).collect();
        nodes.sort_by_key(|node| node.role);
        nodes
    }

    /// The spec of what runs: that of the last `up`, unless it failed before it changed anything.
    pub fn running_spec(&self) -> Option<&Spec> {
        self.deployed.as_deref().or(self.spec.as_ref())
    }

    /// What runs is no longer what was ready.
    fn changed(&mut self) {
        self.ready_since = None;
        self.deployed = None;
    }

    /// The workers that were stopped by hand, and not started since.
    pub fn stopped_by_hand(&self) -> BTreeSet<Key> {
        self.projects().flat_map(|(_, project)| project.stopped_by_hand.iter().cloned()).collect()
    }

    /// Applies one record.
    pub fn apply(&mut self, record: Record, at: jiff::Timestamp) {
        match record {
            Record::SpecTaken { spec, path } => {
                let before = self.spec.replace(*spec).filter(|_| self.ready_since.is_some());
                self.deployed = self.deployed.take().or(before.map(Box::new));
                self.spec_path = path;
            }
            Record::Requested { key, kind, digest } => {
                // A successor keeps the notes of its predecessor, such as its ports.
                let before = self.items.remove(&key);
                // A new request means that the predecessor is gone.
                before.iter().for_each(|before| self.spend(before, at));
                let notes = before.map(|item| item.notes).filter(|notes| !notes.is_none());
                let notes = notes.unwrap_or_else(|| Notes::of(&key, &kind));
                let (state, exists_since, priced, adopted) = (ItemState::Requested, None, None, false);
                let item = Item { kind, state, id: None, digest, since: at, exists_since, priced, adopted, notes };
                self.items.insert(key, item);
                self.changed();
            }
            Record::Priced { key, price, from } => {
                if let Some(item) = self.items.get_mut(&key) {
                    item.priced = Some(Priced { price, from });
                }
                self.begin(&key);
            }
            Record::Exists { key, id } => {
                if let Some(item) = self.items.get_mut(&key) {
                    item.state = ItemState::Exists;
                    // A repeated record of the same id does not change the time.
                    if item.id.as_ref() != Some(&id) || item.exists_since.is_none() {
                        item.exists_since = Some(at);
                    }
                    item.id = Some(id);
                }
                self.begin(&key);
            }
            Record::Adopted { key } => {
                if let Some(item) = self.items.get_mut(&key) {
                    item.adopted = true;
                }
            }
            Record::Noted { key, notes } => {
                if let Some(item) = self.items.get_mut(&key) {
                    item.notes = notes;
                }
                self.begin(&key);
            }
            Record::Changing { key } => {
                if let Some(item) = self.items.get_mut(&key) {
                    item.state = ItemState::Exists;
                }
                self.changed();
            }
            Record::Ready { key } => {
                if let Some(item) = self.items.get_mut(&key) {
                    item.state = ItemState::Ready;
                }
            }
            Record::Releasing { key } => {
                if let Some(item) = self.items.get_mut(&key) {
                    item.state = ItemState::Releasing;
                }
                self.changed();
            }
            Record::Gone { key } => {
                let gone = self.items.remove(&key);
                gone.iter().for_each(|gone| self.spend(gone, at));
            }
            Record::ClusterReady => self.ready_since = Some(at),
        }
    }
}
