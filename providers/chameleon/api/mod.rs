//! Client of one site's services: Keystone, Blazar, Nova, Glance, Neutron.
//!
//! Reads are retried when that may help. A changing call is sent once and retried only if it was surely not carried
//! out; a failure says whether it may have taken effect.

mod app_credential;
mod blazar;
mod call;
mod failure;
#[cfg(test)]
mod fuzz;
mod lease;
mod lenient;
mod machine;
mod neutron;
mod nova;
mod oidc;
mod session;
mod site;
#[cfg(test)]
mod tests;
mod token;

pub(super) use failure::{Failure, FailureKind};
pub(super) use lease::{Allocation, Host, Lease, NewLease, NewReservation};
pub(super) use machine::{FloatingIp, Image, KeyPair, Network, NewServer, Server};
pub(super) use session::Who;
pub(super) use site::Site;

pub(super) use crate::provider::kit::http::Effect;
