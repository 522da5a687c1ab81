//! The specification of one Ray node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::Key;
use crate::util::digest;

/// The label with the name of a worker's group; workers of a group without a name have none.
pub const GROUP_LABEL: &str = "gpucl.dev/group";

/// The role of a node in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// It runs the cluster's control service, the dashboard and the job API.
    Head,
    /// It runs tasks.
    Worker,
}

/// The specification of one Ray node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// The node's key: `head`, `worker0`.
    pub key: Key,
    /// The node's role.
    pub role: NodeRole,
    /// The key of its host.
    pub host: Key,
    /// Ray's version.
    pub ray_version: String,
    /// Logical CPUs for tasks.
    pub cpus: u32,
    /// GPUs for tasks.
    pub gpus: u32,
    /// The index of its first GPU on the host; the rest follow. `None` if GPUs are only declared.
    pub first_gpu: Option<u32>,
    /// Memory for tasks, in bytes.
    pub memory: u64,
    /// Shared memory for objects, in bytes.
    pub object_store_memory: u64,
    /// Custom resources.
    pub resources: BTreeMap<String, f64>,
    /// Ray's node labels.
    pub labels: BTreeMap<String, String>,
    /// Environment variables of the node and its tasks.
    pub environment: BTreeMap<String, String>,
    /// The dashboard's port, if the spec sets it.
    pub dashboard_port: Option<u16>,
}

impl NodeSpec {
    /// The digest of everything it is started with, except ports that gpucl chooses.
    pub fn digest(&self) -> String {
        digest::of_json(self)
    }

    /// The name of the worker's group, if it has one.
    pub fn group(&self) -> Option<&str> {
        self.labels.get(GROUP_LABEL).map(String::as_str)
    }
}
