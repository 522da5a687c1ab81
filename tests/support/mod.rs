//! What the tests stand on: a hermetic environment for the program.

mod env;

pub(crate) use env::{Outcome, TestEnv};
