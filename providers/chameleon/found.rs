//! What was found for what a spec leaves open, as it stands in the plan: the provider's own form of a `Finding`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::config::{self, HostSettings};
use crate::provider::HostFilter;

/// Which lease the hosts come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LeaseFound {
    /// The one that was made for this cluster.
    Own {
        /// Its id.
        id: String,
    },
    /// One that the user made otherwise.
    Adopted {
        /// Its id.
        id: String,
    },
    /// One that is to be made.
    New {
        /// When it begins; `None` for at once.
        start: Option<Timestamp>,
        /// When it ends.
        end: Timestamp,
        /// Its hosts, by name.
        hosts: Vec<String>,
    },
}

/// What was found for one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Found {
    /// Which hosts the cluster asks for, as its spec says it.
    pub(super) wanted: Wanted,
    /// The lease.
    pub(super) lease: LeaseFound,
    /// The host.
    pub(super) node: String,
    /// The image, by id.
    pub(super) image: String,
    /// The flavor, by id.
    pub(super) flavor: String,
    /// The network, by id.
    pub(super) network: String,
    /// The network of floating IPs, by id.
    pub(super) public: String,
    /// The floating IP that the user named, by id.
    pub(super) address: Option<String>,
}

/// What was found for what the hosts of a cluster share, and for a lease of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharedFound {
    /// The lease.
    pub(super) lease: LeaseFound,
    /// How the lease is to be called, before its tag; by the cluster's name otherwise.
    #[serde(default)]
    pub(super) title: Option<String>,
    /// The network of floating IPs, by id.
    #[serde(default)]
    pub(super) public: Option<String>,
}

/// Which hosts a cluster asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    pub(super) nodes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpu: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpus: Option<u32>,
    pub(super) count: usize,
}

impl Wanted {
    /// What these entries ask for.
    pub(super) fn of(hosts: &[HostSettings]) -> Self {
        let HostFilter { nodes, kind, gpu, gpus } = config::filter(hosts);
        Self { nodes, kind, gpu, gpus, count: hosts.len() }
    }
}
