//! The command line itself, without a cluster.

mod completions;
mod reference;
mod refusals;
mod render;
