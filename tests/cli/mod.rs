//! The command line itself, without a cluster.

mod bare_machine;
mod children;
mod completions;
mod consent;
mod escapes;
mod example;
mod linked;
mod login;
mod machines;
mod messages;
mod mounts;
mod owner;
mod playbooks;
mod reference;
mod refusals;
mod render;
mod run;
mod sandbox;
mod services;
mod setup;
mod stranger;
mod template;
mod writes;
