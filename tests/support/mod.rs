//! What the tests stand on: a hermetic environment for the program.

mod cluster;
mod env;

pub(crate) use cluster::{tagged_processes, turn};
pub(crate) use env::{Outcome, TestEnv};
