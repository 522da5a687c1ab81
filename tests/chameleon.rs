//! Chameleon through the program: on the stand-in in this process, and, where noted, on the real services of
//! `testbed/openstack`.

mod gc;
mod lease;
mod listed;
mod login;
mod matrix;
mod real;
pub(crate) mod site;
mod sites;
mod trouble;
mod two_sites;
mod whole;
