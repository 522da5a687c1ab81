//! Hosts by SSH, on the testbed: Ubuntu in system containers, with stand-ins for GPUs and for Grafana and nothing else.
//!
//! All of these but `copies`, which takes an sshd of its own, need `testbed/hosts`, root, and Docker's engine, which
//! `testbed/hosts/up` installs and starts.

mod by_hand;
mod closed;
mod copies;
mod data;
mod every;
mod inside;
mod many;
mod one_host;
mod panels;
mod served;
mod setup;
mod spec;
mod story;
mod sync_bench;
mod testbed;
mod torch;
mod trace;
mod trouble;

pub(crate) use data::data_in_and_results_out;
pub(crate) use spec::spec;
pub(crate) use testbed::{TestHost, docker, example, gpucl, mirrors, openstack_script, testbed, use_images, with_data};
