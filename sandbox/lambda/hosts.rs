//! The interface for hosts behind instances, created in this process.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;

/// An instance that needs a host.
#[derive(Clone, PartialEq, Eq)]
pub struct Boot {
    /// Instance id.
    pub id: String,
    /// Hostname.
    pub hostname: String,
    /// Name of the instance type.
    pub instance_type: String,
    /// Number of GPUs.
    pub gpus: u32,
    /// Name of the region.
    pub region: String,
    /// User data for cloud-init; it may hold secrets.
    pub user_data: Option<String>,
    /// Public keys that may log in.
    pub public_keys: Vec<String>,
    /// Delay before sshd answers, once the instance is active.
    pub silent: Duration,
}

impl Debug for Boot {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Boot of {} ({})", self.id, self.instance_type)
    }
}

/// Creates hosts for instances: local processes, or fakes in tests.
#[async_trait]
pub trait Hosts: Debug + Send + Sync {
    /// Creates the host of an instance, and returns the address of its sshd. On an error the instance becomes
    /// unhealthy.
    async fn boot(&self, instance: &Boot) -> Result<SocketAddr>;

    /// Ends the host of an instance. Idempotent: an unknown id is not an error.
    async fn end(&self, id: &str) -> Result<()>;
}
