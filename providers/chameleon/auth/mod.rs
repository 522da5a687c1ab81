//! Where credentials come from: sources, selection, storage and login.

mod clouds;
mod each_site;
mod entry;
mod find;
mod flat;
mod listed;
mod login;
mod sign_in;
mod sites;
#[cfg(test)]
mod tests;
mod trial;

pub(super) use each_site::each_site;
pub(super) use find::{Candidate, Choice, find};
pub(super) use login::ChameleonLogin;
pub(super) use trial::ends;
