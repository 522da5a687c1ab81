//! What is remembered of an item, beside that it is there: a record for each kind of item that has one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ItemKind;
use crate::name::Key;
use crate::playbook::Facts;
use crate::provider::{GpuOffer, HostPlace};
use crate::spec::NodeSpec;

/// What is remembered of an item.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Notes {
    /// Nothing: a key, an address, rules.
    #[default]
    None,
    /// Of a host.
    Host(Box<HostNotes>),
    /// Of what runs on a host.
    Project(Box<ProjectNotes>),
    /// Of a lease that belongs to no cluster.
    Lease(Box<LeaseNotes>),
}

impl Notes {
    /// Those of an item of which nothing is known yet.
    pub(super) fn of(key: &Key, kind: &ItemKind) -> Self {
        match kind {
            ItemKind::Project => Self::Project(Box::default()),
            ItemKind::Resource(_) if key.is_host() => Self::Host(Box::default()),
            ItemKind::Resource(_) => Self::None,
        }
    }

    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// What is remembered of a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostNotes {
    /// How commands are run on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<HostPlace>,
    /// The address that the cluster's other hosts reach it by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What it told of itself when it was prepared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
    /// The ports of what runs there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<HostPorts>,
    /// The GPUs that its provider promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promised: Option<Vec<GpuOffer>>,
    /// When it is taken away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The folder of Ray's environment there, where nodes are processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ray_env: Option<PathBuf>,
}

/// What is remembered of what runs on a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProjectNotes {
    /// The ports of the pages on the user's machine. The first host's alone has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<Pages>,
    /// The nodes that were last started there.
    pub nodes: Vec<NodeSpec>,
    /// They were ended by `stop`.
    pub stopped: bool,
}

/// What is remembered of a lease that belongs to no cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseNotes {
    /// Where it is.
    pub source: LeaseSource,
    /// Its name, as it was asked for.
    pub name: String,
    /// When it ends.
    pub end: Timestamp,
    /// The digest of the words that it was asked for with: the same words again are the same ask.
    pub asked: String,
}

/// Where a lease is, so that what was left open is asked for at the right place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseSource {
    /// The provider's name.
    pub provider: String,
    /// The settings that it was opened with.
    pub settings: serde_json::Value,
    /// The site that was found for them.
    #[serde(default)]
    pub place: String,
}

/// The ports of one host that what runs there is reached by. One that a runtime has not, or not yet, is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPorts {
    /// Ray's dashboard and job API.
    pub dashboard: u16,
    /// Ray's client server.
    pub client: u16,
    /// The object store's S3 interface.
    pub object_store: u16,
    /// The object store's console.
    pub console: u16,
    /// Prometheus.
    pub prometheus: u16,
    /// Grafana.
    pub grafana: u16,
    /// Jupyter.
    pub jupyter: u16,
    /// The first of those that Ray's nodes take where they are on the host's network.
    pub ray: u16,
    /// The first port of each node's own block, where nodes have blocks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub blocks: BTreeMap<Key, u16>,
}

impl HostPorts {
    /// The ports that may be used on a host: what must be free before its first start.
    pub fn all(&self) -> Vec<u16> {
        let all =
            [self.dashboard, self.client, self.object_store, self.console, self.prometheus, self.grafana, self.jupyter];
        all.into_iter().filter(|port| *port != 0).collect()
    }
}

/// The ports on the user's machine under which pages are shown: chosen once per cluster, since Grafana's must be known
/// before the head starts. By the page's name.
pub type Pages = BTreeMap<String, u16>;
