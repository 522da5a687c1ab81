//! The suite that every provider must pass.
//!
//! It talks to a provider through the contract alone, as the engine does, and does to it what a bad day does: answers that
//! are lost, calls that are cut in the middle, calls that are made twice, colleagues in the same account. Each run
//! uses owners of its own, so that it never meets anybody's things, and removes what it made after every case, also
//! after one that failed or was stopped.

mod acquiring;
mod bench;
mod broken_off;
mod reading;
mod recorders;
mod releasing;
mod suite;

pub use suite::{Case, CaseResult, Outcome, Subject, count, run, run_until};
