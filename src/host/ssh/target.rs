//! How one host is reached.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How a host is reached by SSH. What is absent is as the user's own configuration says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshTarget {
    /// A host name, an address, or an alias of the user's configuration.
    pub node: String,
    /// The user to log in as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The port of the SSH server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The private key to log in with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_file: Option<PathBuf>,
    /// The host's public key, `ssh-ed25519 AAAA…`, where it is known before the first connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
    /// The host of the same cluster that it is reached through, by its name: `host-0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jump: Option<String>,
    /// The address that the other hosts of the cluster reach it by; by default the one that it is reached by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_address: Option<String>,
}
