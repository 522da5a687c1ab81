//! The records of what an account has at a stand-in: keys, instances, file systems, firewalls, free capacity.

use std::net::SocketAddr;

use jiff::Timestamp;
use serde_json::Value;

use super::config::{Outcome, User};

#[derive(Debug, Clone)]
pub(super) struct SshKey {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) public_key: String,
    pub(super) shown: Timestamp,
}

/// Phase in the life of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Booting { until: Timestamp },
    Active,
    Unhealthy,
    Preempted { since: Timestamp },
    Terminating { since: Timestamp },
    Terminated { since: Timestamp },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Host {
    /// No host, and a made-up address.
    MadeUp,
    /// A host will be created; `begun` once its creation started.
    Awaited { begun: bool },
    /// A host whose sshd has this address.
    At(SocketAddr),
}

/// A virtual machine of the account.
#[derive(Debug, Clone)]
pub(super) struct Instance {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) region: String,
    pub(super) key_names: Vec<String>,
    /// The public keys at the time of the launch.
    pub(super) public_keys: Vec<String>,
    /// Ids of file systems, and their mount points.
    pub(super) mounts: Vec<(String, String)>,
    pub(super) hostname: Option<String>,
    pub(super) image: String,
    pub(super) user_data: Option<String>,
    pub(super) tags: Vec<(String, String)>,
    pub(super) rulesets: Vec<String>,
    pub(super) launched: Timestamp,
    pub(super) shown: Timestamp,
    pub(super) ended: Option<Timestamp>,
    pub(super) phase: Phase,
    pub(super) outcome: Outcome,
    /// The public address if there is no host.
    pub(super) made_up: String,
    pub(super) private_ip: String,
    pub(super) host: Host,
    /// Whether the creator of the host reported that sshd answers.
    pub(super) answers: bool,
    pub(super) jupyter_token: String,
    /// How many more requests to terminate it are refused.
    pub(super) refusals: u32,
    /// Whether its status is one that the document does not have.
    pub(super) is_strange: bool,
    /// Whether a test added it.
    pub(super) is_foreign: bool,
}

#[derive(Debug, Clone)]
pub(super) struct FileSystem {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) region: String,
    pub(super) created: Timestamp,
    pub(super) shown: Timestamp,
    pub(super) by: User,
}

/// A firewall ruleset of a region.
#[derive(Debug, Clone)]
pub(super) struct Ruleset {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) region: String,
    pub(super) rules: Vec<Value>,
    pub(super) created: Timestamp,
    pub(super) shown: Timestamp,
}

/// Free capacity of a type in a region.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Free {
    pub(super) count: u32,
    /// Whether it is listed but cannot be launched.
    pub(super) is_phantom: bool,
}
