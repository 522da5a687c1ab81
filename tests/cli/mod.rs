//! The command line itself, without a cluster.

mod completions;
mod login;
mod owner;
mod reference;
mod refusals;
mod render;
mod sandbox;
