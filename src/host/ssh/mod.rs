//! Hosts that are reached by SSH: the system's `ssh`, one connection per host, many execs over it.
//!
//! The user's own configuration, agent, jump hosts and hardware keys all work, since it is the user's own program that
//! connects. Each cluster has an `ssh_config` and a `known_hosts` in the folder of its state.

mod config;
mod connect;
mod exec;
mod trouble;
mod tunnel;

mod target;

pub use config::HostEntry;
pub use connect::Connections;
pub use exec::SshHost;
pub use target::SshTarget;
pub use tunnel::Tunnel;
