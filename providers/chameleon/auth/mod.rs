//! Where credentials come from: sources, selection, storage and login.

mod clouds;
mod entry;
mod find;
mod flat;
mod login;
mod sites;
#[cfg(test)]
mod tests;

pub(super) use find::{Candidate, Choice, find};
pub(super) use login::ChameleonLogin;
