//! The command line itself, without a cluster.

mod completions;
mod escapes;
mod login;
mod reference;
mod refusals;
mod render;
mod sandbox;
mod stranger;
