//! Each behavior as observed at the real services: statuses and messages are those of `testbed/openstack`.

mod client;
mod compute;
mod faults;
mod leases;
mod network;
mod own;
mod tokens;
