//! A cluster as it is known: what the journal's records add up to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cost::Priced;
use super::notes::{HostNotes, LeaseNotes, Notes, Pages, ProjectNotes};
use crate::money::{HourlyPrice, Money};
use crate::name::{ClusterName, Key, Owner, Scope};
use crate::provider::HostPlace;
use crate::spec::{NodeSpec, Spec};

/// What an item is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "of")]
pub enum ItemKind {
    /// Something that a provider made for us, by the provider's kind of it.
    Resource(String),
    /// What runs on a host: its project.
    Project,
}

/// How far an item has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    /// The call that makes it may have been sent; only `observe` can tell.
    Requested,
    /// It exists under an id.
    Exists,
    /// It did what it was made for.
    Ready,
    /// The call that removes it may have been sent.
    Releasing,
}

/// One thing of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// What it is.
    #[serde(flatten)]
    pub kind: ItemKind,
    /// How far it has come.
    pub state: ItemState,
    /// Its id, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The digest of what was asked for; another one means that the spec has changed.
    pub digest: String,
    /// When it was asked for.
    pub since: jiff::Timestamp,
    /// When its id was learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exists_since: Option<jiff::Timestamp>,
    /// What it costs for as long as it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priced: Option<Priced>,
    /// It was not made for the cluster, and is not released with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// What else is to be remembered of it, such as its ports.
    #[serde(default, skip_serializing_if = "Notes::is_none")]
    pub notes: Notes,
}

/// A cluster as it is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterState {
    /// Its name.
    pub name: ClusterName,
    /// Whose it is.
    pub owner: Owner,
    /// When it was first asked for.
    pub created: jiff::Timestamp,
    /// The spec that was last asked for.
    #[serde(default)]
    pub spec: Option<Spec>,
    /// The file that the spec came from.
    #[serde(default)]
    pub spec_path: Option<String>,
    /// When all checks last passed, since the last change.
    #[serde(default)]
    pub ready_since: Option<jiff::Timestamp>,
    /// When its first host was acquired, or the first thing that costs something: its deadline counts from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<jiff::Timestamp>,
    /// What was spent on things that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<Money>,
    /// Its things.
    #[serde(default)]
    pub items: BTreeMap<Key, Item>,
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A spec is asked for from now on.
    SpecTaken {
        /// The spec.
        spec: Box<Spec>,
        /// Its file.
        path: Option<String>,
    },
    /// The call that makes an item is about to be sent.
    Requested {
        /// The item.
        key: Key,
        /// What it is.
        #[serde(flatten)]
        kind: ItemKind,
        /// The digest of what is asked for.
        digest: String,
    },
    /// The item that is asked for costs something for as long as it is there.
    Priced {
        /// The item.
        key: Key,
        /// An hour of it.
        price: HourlyPrice,
        /// Since when, where that is not when its id was learned.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<jiff::Timestamp>,
    },
    /// An item exists.
    Exists {
        /// The item.
        key: Key,
        /// Its id.
        id: String,
    },
    /// An item was not made for the cluster, and is not released with it.
    Adopted {
        /// The item.
        key: Key,
    },
    /// This is to be remembered of an item from now on.
    Noted {
        /// The item.
        key: Key,
        /// All that is.
        notes: Notes,
    },
    /// An item did what it was made for.
    Ready {
        /// The item.
        key: Key,
    },
    /// The call that removes an item is about to be sent.
    Releasing {
        /// The item.
        key: Key,
    },
    /// An item is gone.
    Gone {
        /// The item.
        key: Key,
    },
    /// All checks passed.
    ClusterReady,
}

impl ClusterState {
    /// A cluster of which nothing is known yet.
    pub fn new(scope: &Scope, now: jiff::Timestamp) -> Self {
        Self {
            name: scope.cluster.clone(),
            owner: scope.owner.clone(),
            created: now,
            spec: None,
            spec_path: None,
            ready_since: None,
            begun: None,
            spent: Vec::new(),
            items: BTreeMap::new(),
        }
    }

    /// Whose and which cluster it is.
    pub fn scope(&self) -> Scope {
        Scope { owner: self.owner.clone(), cluster: self.name.clone() }
    }

    /// What is remembered of a host; `None` while it was not asked for.
    pub fn host(&self, key: &Key) -> Option<&HostNotes> {
        match &self.items.get(key)?.notes {
            Notes::Host(host) => Some(host),
            _ => None,
        }
    }

    /// What is remembered of the hosts that were asked for.
    pub fn hosts(&self) -> impl Iterator<Item = (&Key, &HostNotes)> {
        self.items.keys().filter_map(|key| Some((key, self.host(key)?)))
    }

    /// Its hosts are this machine: what answers there answers here.
    pub fn is_here(&self) -> bool {
        let mut places = self.hosts().map(|(_, host)| &host.place).peekable();
        places.peek().is_some() && places.all(|place| matches!(place, Some(HostPlace::Local { .. })))
    }

    /// When what it has ends by itself: the first of its leases.
    pub fn ends(&self) -> Option<jiff::Timestamp> {
        self.hosts().filter_map(|(_, host)| host.until).min()
    }

    /// What is remembered of what runs on a host, by the key of its project.
    pub fn project(&self, key: &Key) -> Option<&ProjectNotes> {
        match &self.items.get(key)?.notes {
            Notes::Project(project) => Some(project),
            _ => None,
        }
    }

    /// What is remembered of what runs on hosts.
    pub fn projects(&self) -> impl Iterator<Item = (&Key, &ProjectNotes)> {
        self.items.keys().filter_map(|key| Some((key, self.project(key)?)))
    }

    /// The ports of its pages on the user's machine, once they were chosen.
    pub fn pages(&self) -> Option<&Pages> {
        self.project(&Key::project(0))?.pages.as_ref()
    }

    /// What is remembered of a lease that belongs to no cluster.
    pub fn lease(&self, key: &Key) -> Option<&LeaseNotes> {
        match &self.items.get(key)?.notes {
            Notes::Lease(lease) => Some(lease),
            _ => None,
        }
    }

    /// The nodes as they were last started, the head first.
    pub fn started_nodes(&self) -> Vec<NodeSpec> {
        let mut nodes: Vec<NodeSpec> = self.projects().flat_map(|(_, project)| project.nodes.clone()).collect();
        nodes.sort_by_key(|node| node.role);
        nodes
    }

    /// Adds one record.
    pub fn apply(&mut self, record: Record, at: jiff::Timestamp) {
        match record {
            Record::SpecTaken { spec, path } => {
                self.spec = Some(*spec);
                self.spec_path = path;
            }
            Record::Requested { key, kind, digest } => {
                // What was remembered of a predecessor (its ports) is kept: a successor may want the same.
                let before = self.items.remove(&key);
                // Asked for anew, the one before is gone.
                before.iter().for_each(|before| self.spend(before, at));
                let notes = before.map(|item| item.notes).filter(|notes| !notes.is_none());
                let notes = notes.unwrap_or_else(|| Notes::of(&key, &kind));
                let (state, exists_since, priced, adopted) = (ItemState::Requested, None, None, false);
                let item = Item { kind, state, id: None, digest, since: at, exists_since, priced, adopted, notes };
                self.items.insert(key, item);
                self.ready_since = None;
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
                    // What was told already exists since then.
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
                self.ready_since = None;
            }
            Record::Gone { key } => {
                let gone = self.items.remove(&key);
                gone.iter().for_each(|gone| self.spend(gone, at));
            }
            Record::ClusterReady => self.ready_since = Some(at),
        }
    }
}
