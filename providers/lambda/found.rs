//! Resolved values for what a spec leaves open, as stored in the plan: this provider's data of a `Finding`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::FileSystemSettings;
use crate::name::Key;

/// The SSH key to log in with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KeyFound {
    /// A key made for the cluster.
    Own,
    /// An existing key of the account.
    Account { id: String, name: String },
}

/// A file system to mount on the hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileSystemFound {
    /// Its entry in the spec.
    pub(super) wanted: FileSystemSettings,
    /// The id of the account's existing file system; `None` for one to be made.
    pub(super) id: Option<String>,
}

/// The resolved values of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HostFound {
    /// The region of all hosts.
    pub(super) region: String,
    /// The instance type.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// The cluster has several hosts, which need firewall rules for each other.
    pub(super) several: bool,
    pub(super) key: KeyFound,
    pub(super) file_systems: Vec<FileSystemFound>,
    /// The image, in Lambda's JSON format.
    pub(super) image: Option<Value>,
}

/// The resource key of the SSH key that all hosts share.
pub(super) fn key_key() -> Key {
    Key::numbered("key", 0)
}
