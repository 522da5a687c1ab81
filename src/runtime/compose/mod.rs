//! The `docker` runtime: one compose project per host.
//!
//! Everything here is pure: from a spec, the nodes and what the hosts told come the files of each project, the stages that
//! bring a host there, the script that looks at it and the one that removes it. `cluster::backend::hosts` runs them.

mod checks;
mod clean;
mod images;
mod ports;
mod prepare;
mod project;
mod runtime;
mod stage;
mod view;

pub use clean::{clean_script, stop_script};
pub use images::{Build, HostImages, host_images};
pub use ports::peer_ports;
pub use prepare::{Peers, confirm_steps, firewall_stage, preparation, undo_script};
pub use project::{deployment_of, deployments, pages};
pub use runtime::{Compose, inspect_script, logs_script};
pub(super) use stage::look_inside;

pub use super::project::{
    CheckLine, CleanOptions, Container, DeployRequest, Deployment, HostFolders, HostInput, LogLine, LogRequest,
    Observation, Page, checks_in_values, checks_of, log_line, parse_observation,
};
use crate::util::digest;

/// Where the folders of all hosts lie on them: root's alone.
pub const HOST_FOLDERS: &str = "/var/lib/gpucl";

/// The folder of a host, by its tag.
pub fn home_of(tag: &str) -> String {
    format!("{HOST_FOLDERS}/{tag}")
}

/// The name of the nftables table of a host, by its tag: a table's name takes no hyphens and few letters.
pub fn firewall_table(tag: &str) -> String {
    format!("gpucl_{}", &digest::short(tag.as_bytes())[..12])
}

/// The name of the nftables table that keeps a host's loopback, its containers and the cloud's metadata apart.
pub fn closed_table(tag: &str) -> String {
    format!("{}_closed", firewall_table(tag))
}

/// The name of the interface of a single host's containers, and of the control group of those that are on their host's own network:
/// an interface's name takes 15 letters.
fn containers_name(tag: &str) -> String {
    format!("gpucl{}", &digest::short(tag.as_bytes())[..10])
}
