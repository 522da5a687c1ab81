//! The `docker` runtime: one compose project per host.
//!
//! Everything here is pure: it turns a spec, the nodes and the facts about the hosts into each project's files, the
//! stages that prepare and deploy it, and the scripts that inspect and remove it. `cluster::hosts` runs them.

mod build;
mod checks;
mod clean;
mod data;
mod deployment;
mod guard;
mod images;
mod mlflow;
mod mounts;
mod ports;
mod prepare;
mod project;
mod runtime;
mod shared_memory;
mod stage;
mod targets;
mod view;

pub use clean::{clean_script, stop_script};
pub use deployment::{deployment_of, deployments};
pub use images::{Build, HostImages, host_images};
pub use ports::peer_ports;
pub use prepare::{Peers, confirm_steps, firewall_stage, preparation, undo_script};
pub use project::pages;
pub use runtime::{Compose, inspect_script, logs_script};
pub use shared_memory::{loader_room, shared_memory};

pub use super::project::{
    CheckLine, CleanOptions, Container, DeployRequest, Deployment, HostFolders, HostInput, LogLine, LogRequest,
    Observation, Page, checks_in_values, checks_of, log_line, parse_observation,
};
use crate::util::digest;

/// The parent folder of gpucl's folders on a host, accessible to root only.
pub const HOST_FOLDERS: &str = "/var/lib/gpucl";

/// The data folder as containers see it.
pub const DATA_IN_CONTAINERS: &str = "/data";

/// The folder for a host's tag.
pub fn home_of(tag: &str) -> String {
    format!("{HOST_FOLDERS}/{tag}")
}

/// The name of a host's nftables table, by its tag: short and without hyphens, as table names require.
pub fn firewall_table(tag: &str) -> String {
    format!("gpucl_{}", &digest::short(tag.as_bytes())[..12])
}

/// The name of the nftables table that protects a host's loopback, its containers and the cloud's metadata.
pub fn closed_table(tag: &str) -> String {
    format!("{}_closed", firewall_table(tag))
}

/// The name of a single host's container network interface, or of the control group of containers in the host network:
/// 15 letters, the limit for an interface.
fn containers_name(tag: &str) -> String {
    format!("gpucl{}", &digest::short(tag.as_bytes())[..10])
}
