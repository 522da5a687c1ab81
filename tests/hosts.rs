//! Hosts by SSH, on the testbed: Ubuntu in system containers, with stand-ins for GPUs and for Grafana and nothing else.
//!
//! All of these but `copies`, which takes an sshd of its own, need `testbed/hosts`, root, and Docker's engine, which
//! `testbed/hosts/up` installs and starts.

mod closed;
mod copies;
mod data;
mod every;
mod inside;
mod many;
mod one_host;
mod spec;
mod testbed;
mod trace;
mod trouble;

pub(crate) use testbed::{docker, example, gpucl, openstack_script, testbed, with_data};
