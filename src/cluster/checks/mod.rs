//! The checks of a cluster: ready means that every one of them passed, and each says what it saw.

mod nodes;
mod ports;
mod probe;
mod subject;
mod token;
mod wait;

pub(super) use nodes::run;
pub(super) use subject::{Subject, access_of, endpoints};
pub(super) use wait::wait_ready;
