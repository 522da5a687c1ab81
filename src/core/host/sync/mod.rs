//! Makes a folder the same as another: between this machine and a host, either way, or on this machine.
//!
//! Both sides are listed, each by one exec; what to do is decided here, from the two lists alone. What differs goes as
//! archives into a stage in the destination, and from there to its place by renames; large files go by themselves, and
//! go on where they were cut. No link is followed on either side, and neither side needs more than the usual tools.

mod batch;
mod compare;
mod decide;
mod end;
mod exclude;
mod folders;
mod here;
mod part;
mod pieces;
mod shell;
mod there;
mod tree;

pub use compare::{Differences, Progress, SyncOptions, Synced, compare};
pub use end::End;
pub use exclude::Excludes;
pub use here::Here;
pub use there::There;

#[cfg(test)]
mod tests;
