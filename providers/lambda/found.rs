//! What was found for what a spec leaves open, as it stands in the plan: the provider's own form of a `Finding`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::FileSystemSettings;
use crate::name::Key;

/// Which key logs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KeyFound {
    /// One that is made for the cluster.
    Own,
    /// One of the account's.
    Account {
        /// Its id.
        id: String,
        /// Its name.
        name: String,
    },
}

/// A file system that hosts have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileSystemFound {
    /// What the spec says of it.
    pub(super) wanted: FileSystemSettings,
    /// The account's own of that name, by id; `None` for one that is made.
    pub(super) id: Option<String>,
}

/// What was found for one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Found {
    /// Where all hosts are.
    pub(super) region: String,
    /// What this one is.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// There are several hosts: rules let them reach each other.
    pub(super) several: bool,
    /// The key.
    pub(super) key: KeyFound,
    /// The file systems.
    pub(super) file_systems: Vec<FileSystemFound>,
    /// The image, as Lambda takes it.
    pub(super) image: Option<Value>,
}

/// The key of the SSH key that all hosts share.
pub(super) fn key_key() -> Key {
    Key::numbered("key", 0)
}
