//! Client of Lambda's API, version 1: one account, within its rate limits.
//!
//! Reads are retried when that may help. A changing call is sent once and retried only if it was surely not carried
//! out; a failure says whether it may have taken effect.

mod account;
mod call;
mod failure;
mod form;
#[cfg(test)]
mod fuzz;
mod pace;
#[cfg(test)]
mod tests;

pub(super) use account::NewInstance;
pub(super) use call::{Account, endpoint, place_of};
pub(super) use failure::{Api, Failure, FailureKind};
pub(super) use form::{FileSystem, Image, Instance, InstanceType, Rule, Ruleset, SshKey, Status, TypeItem};
pub(super) use pace::Pace;

pub(super) use crate::provider::kit::http::Effect;
