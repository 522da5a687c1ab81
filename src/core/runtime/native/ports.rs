//! The ports of a node: its own block, so that neither nodes nor clusters collide.

use serde::{Deserialize, Serialize};

/// The number of ports in a block: twelve for Ray's servers, the rest for worker processes.
pub(super) const BLOCK: u16 = 100;
/// The range of block numbers: below Linux's ephemeral ports (32768 and up).
pub(super) const BLOCKS: std::ops::Range<u16> = 200..327;

/// The ports of one node, all derived from the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePorts {
    /// The first port of the block; the head's GCS.
    pub base: u16,
    /// The head's dashboard and job API.
    pub dashboard: u16,
}

impl NodePorts {
    /// The head's GCS.
    pub fn gcs(&self) -> u16 {
        self.base
    }
    /// The head's Ray Client server.
    pub fn client(&self) -> u16 {
        self.base + 2
    }
    /// The node's metrics.
    pub fn metrics(&self) -> u16 {
        self.base + 3
    }
    /// The raylet.
    pub fn node_manager(&self) -> u16 {
        self.base + 4
    }
    /// The object manager.
    pub fn object_manager(&self) -> u16 {
        self.base + 5
    }
    /// The dashboard agent's HTTP server.
    pub fn agent_http(&self) -> u16 {
        self.base + 6
    }
    /// The dashboard agent's gRPC server.
    pub fn agent_grpc(&self) -> u16 {
        self.base + 7
    }
    /// The runtime environment agent.
    pub fn runtime_env(&self) -> u16 {
        self.base + 8
    }
    /// The head's autoscaler metrics.
    pub fn autoscaler_metrics(&self) -> u16 {
        self.base + 9
    }
    /// The head's dashboard metrics.
    pub fn dashboard_metrics(&self) -> u16 {
        self.base + 10
    }
    /// The applications of Serve, on the head.
    pub fn serve(&self) -> u16 {
        self.base + 11
    }
    /// The ports of worker processes, both ends included.
    pub fn workers(&self) -> (u16, u16) {
        (self.base + 12, self.base + BLOCK - 1)
    }
}

/// The ports of an object store, all derived from the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StorePorts {
    /// The first port of the block: S3.
    pub(super) base: u16,
}

impl StorePorts {
    /// The number of ports that it listens on; `templates/ray-native/store.py` knows each.
    pub(super) const COUNT: u16 = 8;

    /// The S3 interface.
    pub(super) fn s3(self) -> u16 {
        self.base
    }
}

/// The first block to try for a tag.
pub(super) fn first_block(tag: &str) -> u16 {
    let seed = crate::util::digest::short(tag.as_bytes());
    let seed = u16::from_str_radix(&seed[..4], 16).unwrap_or_default();
    BLOCKS.start + seed % (BLOCKS.end - BLOCKS.start)
}
