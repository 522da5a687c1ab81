//! The `docker` runtime: one compose project per host.
//!
//! Everything here is pure: from a spec, the nodes and what the hosts told come the files of each project, the stages that
//! bring a host there, the script that looks at it and the one that removes it. `cluster::deployed` runs them.

mod deployment;

pub use deployment::{Deployment, HostInput, HostPorts, Page, Pages};
mod clean;
mod look;
mod prepare;
mod project;

pub use clean::{CleanOptions, clean_script, stop_script};
pub use look::{CheckLine, Container, Seen, checks_of, look_script, seen_of};
pub use prepare::{confirm_steps, firewall_table, preparation, undo_script};
pub use project::{DeployRequest, deployments, pages};
