//! The checks of a cluster: ready means that every one of them passed, and each says what it saw.

mod nodes;
mod ports;
mod probe;
mod subject;
mod token;
mod wait;

pub(in crate::cluster) use nodes::run;
pub(in crate::cluster) use subject::{Subject, access_of, endpoints};
pub(in crate::cluster) use wait::wait_ready;
