//! The mounts of a spec: folders of hosts and volumes in the containers of nodes and Jupyter.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::place::{Problem, item, join};
use super::{Loaded, ProviderChoice, Spec};
use crate::error::Result;
use crate::provider::Lookup;

/// Folders of a host whose content gives away or takes over the host. What is above them holds them too.
const SENSITIVE: &[&str] = &[
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/run",
    "/var/spool",
];

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

impl Spec {
    /// What the spec mounts of its hosts, one sentence each, for the person who brings it up.
    pub fn mount_notes(&self) -> Vec<String> {
        let note = |mount: &MountSpec| {
            let what = match mount.source()? {
                MountSource::Host(path) => format!("{path} of every host"),
                MountSource::FileSystem(path) => {
                    format!("the file system {} ({path})", mount.file_system.as_deref().unwrap_or_default())
                }
                MountSource::Volume(_) => return None,
            };
            let how = if mount.read_only { "read" } else { "read and change" };
            Some(format!("jobs and notebooks can {how} {what}, at {}", mount.at))
        };
        self.mounts.iter().filter_map(note).collect()
    }
}

/// Fills in where the hosts have the file systems that are mounted.
pub(super) fn with_file_systems(mut spec: Spec, lookup: Lookup<'_>) -> Spec {
    for mount in &mut spec.mounts {
        let name = mount.file_system.as_deref();
        mount.file_system_at = name.and_then(|name| file_system(&spec.provider, name, lookup));
    }
    spec
}

/// Where every host of this provider has a file system; `None` if it attaches none of that name.
pub(super) fn file_system(provider: &ProviderChoice, name: &str, lookup: Lookup<'_>) -> Option<String> {
    lookup(provider.name()).ok()?.file_system(&provider.settings(), name)
}

/// Refuses mounts of sensitive folders that the user did not allow.
pub(super) fn refuse_sensitive(loaded: &Loaded, allowed: &[String]) -> Result<()> {
    let mut problems = Vec::new();
    for (index, mount) in loaded.spec.mounts.iter().enumerate() {
        let Some(path) = mount.host.as_deref() else { continue };
        let Some(why) = sensitive(path) else { continue };
        if allowed.iter().any(|allowed| is_below(path, allowed)) {
            continue;
        }
        problems.push(
            Problem::new(join(&item("mounts", index), "host"), format!("`{path}` of a host {why}"))
                .note(format!("to allow this, add: --allow-mount {path}")),
        );
    }
    if problems.is_empty() { Ok(()) } else { Err(loaded.places.all(problems)) }
}

/// Why jobs should not have this path of a host; `None` if nothing is known against it.
pub(super) fn sensitive(path: &str) -> Option<&'static str> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if path.ends_with(".sock") {
        return Some("is a socket, which may be as good as root there");
    }
    if SENSITIVE.iter().any(|folder| is_below(path, folder)) {
        return Some("belongs to the system");
    }
    if SENSITIVE.iter().any(|folder| is_below(folder, path)) {
        return Some("has the system's folders in it");
    }
    // `/home/ubuntu`, `/Users/ada`, `/export/home/ada`, `/var/home`.
    let is_home = match parts.as_slice() {
        ["Users"] | ["Users", _] => true,
        [.., last] if ["home", "homes"].contains(last) => true,
        [.., above, _] => ["home", "homes"].contains(above),
        _ => false,
    };
    match parts.as_slice() {
        _ if is_home => Some("is somebody's home, with keys in it"),
        _ if parts.iter().any(|part| part.starts_with('.')) => Some("is hidden, as keys and settings are"),
        _ => None,
    }
}

/// Whether a path is this folder or below it.
pub(super) fn is_below(path: &str, folder: &str) -> bool {
    let folder = folder.trim_end_matches('/');
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_give_a_host_away_are_sensitive() {
        for path in [
            "/",
            "/etc",
            "/etc/ssl",
            "/root",
            concat!("/root", "/.ssh"),
            "/var",
            "/var/run/docker.sock",
            "/run/docker.sock",
            "/srv/docker.sock",
            "/var/lib/docker/volumes",
            "/usr/local",
            "/home",
            "/home/ubuntu",
            "/home/ubuntu/.aws",
            "/Users",
            "/Users/ada",
            "/export/home",
            "/export/home/ada",
            "/var/home/ada",
            "/mnt/nfs/homes/ada",
            "/srv/.hidden/data",
        ] {
            assert!(sensitive(path).is_some(), "{path}");
        }
        for path in ["/srv/data", "/mnt", "/data", "/home/ubuntu/data", "/etcetera", "/var/data", "/opt/models"] {
            assert_eq!(sensitive(path), None, "{path}");
        }
    }

    #[test]
    fn an_allowed_folder_allows_what_is_below_it_and_no_more() {
        assert!(is_below("/etc/ssl", "/etc") && is_below("/etc", "/etc/") && is_below("/etc", "/"));
        assert!(!is_below("/etc", "/etc/ssl") && !is_below("/etcetera", "/etc"));
    }
}
