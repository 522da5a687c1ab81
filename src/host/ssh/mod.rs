//! Hosts that are reached by SSH: the system's `ssh`, one connection per host, many execs over it.

mod target;

pub use target::SshTarget;
