//! A node of Ray as it is asked for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::Key;
use crate::util::digest;

/// What a node is in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// It holds the cluster's state, the dashboard and the job API.
    Head,
    /// It runs tasks.
    Worker,
}

/// A node of Ray as it is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its key: `head`, `worker0`.
    pub key: Key,
    /// What it is.
    pub role: NodeRole,
    /// The host that it runs on.
    pub host: Key,
    /// Ray's version.
    pub ray_version: String,
    /// Logical CPUs for tasks.
    pub cpus: u32,
    /// GPUs for tasks.
    pub gpus: u32,
    /// Which of the host's GPUs it owns, from this one on; `None` when they are only declared.
    pub first_gpu: Option<u32>,
    /// Memory for tasks, in bytes.
    pub memory: u64,
    /// Shared memory for objects, in bytes.
    pub object_store_memory: u64,
    /// Custom resources.
    pub resources: BTreeMap<String, f64>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
    /// The dashboard's port, when the spec fixes it.
    pub dashboard_port: Option<u16>,
}

impl NodeSpec {
    /// The digest of all that it is started with; ports that gpucl chooses are not part of it.
    pub fn digest(&self) -> String {
        digest::of_json(self)
    }
}
