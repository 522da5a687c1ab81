//! Each real behaviour, as it was seen at the real services: statuses and words are those of `testbed/openstack`.

mod client;
mod compute;
mod faults;
mod leases;
mod network;
mod own;
mod tokens;
