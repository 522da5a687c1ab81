//! The command line itself, without a cluster.

mod completions;
mod login;
mod reference;
mod refusals;
mod render;
mod sandbox;
mod services;
mod template;
mod told;
