//! Lambda's interface, version 1: one account, spoken to at the pace that it asks for.
//!
//! A call that reads is tried again when that may help. A call that changes something is sent once, but for what was surely not
//! carried out; a failure says whether it may have been.

mod account;
mod call;
mod failure;
mod form;
#[cfg(test)]
mod fuzz;
mod pace;
#[cfg(test)]
mod tests;

pub(super) use account::{Account, LAUNCH_PATH, NewInstance};
pub(super) use call::{endpoint, place_of};
pub(super) use failure::{Api, Failure, FailureKind};
pub(super) use form::{FileSystem, Image, Instance, InstanceType, Rule, Ruleset, SshKey, Status, TypeItem};
pub(super) use pace::Pace;

pub(super) use crate::provider::http::Effect;
