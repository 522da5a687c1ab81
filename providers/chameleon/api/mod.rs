//! One site's services: Keystone, Blazar, Nova, Glance, Neutron.
//!
//! A call that reads is tried again when that may help. A call that changes something is sent once, but for what was surely not
//! carried out; a failure says whether it may have been.

mod blazar;
mod call;
mod failure;
mod lease;
mod lenient;
mod machine;
mod neutron;
mod nova;
mod session;
mod site;
#[cfg(test)]
mod tests;
mod token;

pub(super) use failure::{Api, Effect, Failure, FailureKind};
pub(super) use lease::{Allocated, Allocation, Host, Lease, NewLease, NewReservation, Reservation};
pub(super) use machine::{Address, Flavor, FloatingIp, Image, KeyPair, Limits, Network, NewServer, Port, Server};
pub(super) use site::{Site, Who};
