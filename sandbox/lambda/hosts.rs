//! Hosts that stand behind instances, made in this process.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;

/// An instance that is to get a host.
#[derive(Clone, PartialEq, Eq)]
pub struct Boot {
    /// The instance's id.
    pub id: String,
    /// The host's name.
    pub hostname: String,
    /// The instance type's name.
    pub instance_type: String,
    /// How many GPUs it has.
    pub gpus: u32,
    /// The region's name.
    pub region: String,
    /// What cloud-init is to be given; it may hold secrets.
    pub user_data: Option<String>,
    /// The public keys that can log in.
    pub public_keys: Vec<String>,
    /// How long sshd is to stay silent, once the instance is active.
    pub silent: Duration,
}

impl Debug for Boot {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Boot of {} ({})", self.id, self.instance_type)
    }
}

/// What makes hosts of instances: local processes, or nothing in tests.
#[async_trait]
pub trait Hosts: Debug + Send + Sync {
    /// Makes the host of an instance, and tells where its sshd will answer. When it fails, the instance is unhealthy.
    async fn boot(&self, instance: &Boot) -> Result<SocketAddr>;

    /// Ends the host of an instance; one that there is no host of is no error.
    async fn end(&self, id: &str) -> Result<()>;
}
