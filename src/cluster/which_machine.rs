//! Which machine a cluster of the provider `local` is on: machines may share a home folder, and with it the state.
//!
//! It is the one whose boot or host name is the recorded one: a name may change while a machine runs, and the boot with each
//! restart. The id in `/etc/machine-id` decides nothing: copies of one image often have the same.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::state::{ClusterState, Paths};
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_text_within, write_atomic};
use crate::util::process::{boot_id, host_name};

/// The version of the record.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Machine {
    version: u32,
    name: String,
    boot: String,
}

impl Machine {
    fn of_this_process() -> Self {
        Self { version: VERSION, name: host_name(), boot: boot_id() }
    }

    fn is(&self, other: &Self) -> bool {
        (!self.boot.is_empty() && self.boot == other.boot) || self.name.eq_ignore_ascii_case(&other.name)
    }
}

fn file(paths: &Paths, cluster: &ClusterName) -> PathBuf {
    paths.cluster(cluster).join("machine.json")
}

/// Records that a cluster is on this machine.
///
/// # Errors
/// If that cannot be written.
pub(in crate::cluster) fn record(paths: &Paths, cluster: &ClusterName) -> Result<()> {
    let file = file(paths, cluster);
    let write = || {
        create_private_dir(&paths.cluster(cluster))?;
        write_atomic(&file, &serde_json::to_vec(&Machine::of_this_process())?, 0o600)
    };
    write().map_err(|error: std::io::Error| {
        Error::new(ErrorKind::State, format!("write {}", file.display()))
            .caused_by(&error)
            .hint("make room on the disk that it is on, and let yourself write there; then run the same command again")
    })
}

/// The name of the other machine that a cluster is on; `None` if it is on this one, or is not one of a machine's own.
pub fn other_machine(paths: &Paths, state: &ClusterState) -> Option<String> {
    if !state.is_here() {
        return None;
    }
    let text = read_text_within(&file(paths, &state.name), RECORD_LIMIT).ok()?;
    let recorded: Machine = serde_json::from_str(&text).ok()?;
    (!recorded.is(&Machine::of_this_process())).then_some(recorded.name)
}

/// Refuses to work on a cluster that is on another machine.
///
/// # Errors
/// If it is.
pub fn refuse_other_machine(paths: &Paths, state: &ClusterState, doing: &str) -> Result<()> {
    let Some(name) = other_machine(paths, state) else { return Ok(()) };
    let file = file(paths, &state.name);
    Err(Error::new(ErrorKind::State, format!("{doing} {}", state.name))
        .because(format!("it is on {name}, another machine that shares this home folder; nothing was changed"))
        .hint(format!("run the same command on {name}"))
        .hint(format!("if {name} is gone, or is this machine under another name: rm {}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_known_by_its_boot_or_its_name() {
        let machine =
            |name: &str, boot: &str| Machine { version: VERSION, name: name.to_owned(), boot: boot.to_owned() };
        let recorded = machine("node1", "b1");
        assert!(recorded.is(&machine("node1", "b2")), "it was restarted");
        assert!(recorded.is(&machine("renamed", "b1")));
        assert!(recorded.is(&machine("NODE1", "")));
        assert!(!recorded.is(&machine("node2", "b2")));
        assert!(!machine("node1", "").is(&machine("node2", "")), "no boot is not one boot");
    }
}
