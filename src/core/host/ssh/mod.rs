//! Hosts reached by SSH: the system's `ssh`, one connection per host, many execs over it.
//!
//! The user's configuration, agent, jump hosts, certificates and hardware keys work, because the user's own `ssh`
//! connects.

mod config;
mod connect;
mod contents;
mod forward;
#[cfg(test)]
mod fuzz;
mod greeting;
mod host;
mod host_keys;
mod live;
mod own_key;
pub(super) mod path;
mod place;
mod route;
pub(super) mod stream;
mod target;
mod tool;
pub(super) mod transfer;
mod trouble;
mod tunnel;
pub(super) mod unpack;

pub use config::HostEntry;
pub use connect::Connections;
pub use host::SshHost;
pub use path::HostPath;
pub use stream::{Ended, StreamHost, converse};
pub use target::{Relay, SshTarget, TargetFault, user_fault};
pub use transfer::{Copied, download, upload};
pub use tunnel::{Tunnel, Way};
pub use unpack::LeftOut;
