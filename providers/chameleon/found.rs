//! Resolved values for what a spec leaves open, as stored in the plan: this provider's data of a `Finding`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::config::{self, HostSettings};
use crate::provider::HostFilter;

/// The lease that the hosts come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LeaseFound {
    /// The lease made for this cluster.
    Own { id: String },
    /// An existing lease of the user's.
    Adopted { id: String },
    /// A lease to be made.
    New {
        /// `None` for at once.
        start: Option<Timestamp>,
        end: Timestamp,
        /// The hosts, by name.
        hosts: Vec<String>,
    },
}

/// The resolved values of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HostFound {
    /// The hosts that the cluster's spec asks for.
    pub(super) wanted: Wanted,
    pub(super) lease: LeaseFound,
    /// The host, by name.
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

/// The resolved values of resources that the hosts of a cluster share, and of a standalone lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharedFound {
    pub(super) lease: LeaseFound,
    /// The lease's name before its tag; default: the cluster's name.
    #[serde(default)]
    pub(super) title: Option<String>,
    /// The network of floating IPs, by id.
    #[serde(default)]
    pub(super) public: Option<String>,
}

/// The hosts that a cluster asks for.
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
    /// The hosts that these entries ask for.
    pub(super) fn of(hosts: &[HostSettings]) -> Self {
        let HostFilter { nodes, kind, gpu, gpus } = config::filter(hosts);
        Self { nodes, kind, gpu, gpus, count: hosts.len() }
    }
}
