//! The mounts of a spec: folders of hosts and volumes in the containers of nodes and Jupyter.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A folder or volume in the containers of the head, the workers and Jupyter. It has one of `host`, `volume` and
/// `file_system`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("asks_nothing" = ["volume", "file_system", "at", "read_only"]))]
pub struct MountSpec {
    /// A folder or file of each host, by its absolute path; it must exist there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("asks" = {"flag": "--allow-mount"}))]
    pub host: Option<String>,
    /// A volume of the cluster, by its name; each host has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// A file system that the provider attaches to every host, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// The absolute path in the containers.
    pub at: String,
    /// Whether the containers may only read it.
    #[serde(default)]
    pub read_only: bool,
    /// Where the hosts have the file system; filled in when the spec is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub file_system_at: Option<String>,
}

/// What is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountSource<'a> {
    /// A folder of each host, by its absolute path.
    Host(&'a str),
    /// A file system of the provider, by its absolute path on each host.
    FileSystem(&'a str),
    /// A volume of the cluster on each host, by its name.
    Volume(&'a str),
}

impl MountSpec {
    /// What is mounted; `None` in a spec that was not validated.
    pub fn source(&self) -> Option<MountSource<'_>> {
        let host = self.host.as_deref().map(MountSource::Host);
        let file_system = || self.file_system_at.as_deref().map(MountSource::FileSystem);
        host.or_else(file_system).or_else(|| self.volume.as_deref().map(MountSource::Volume))
    }
}
