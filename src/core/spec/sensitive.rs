//! Folders of a host that a spec may mount only if the user allows it.

use super::Loaded;
use super::place::{Problem, item, join};
use crate::error::Result;

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
