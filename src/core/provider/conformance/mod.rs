//! The conformance suite, which every provider must pass.
//!
//! It uses a provider through the contract only, as the engine does, and simulates what can go wrong: lost answers,
//! calls dropped in the middle, repeated calls, other users of the same account. Each run uses owners of its own, so
//! that it never touches anybody's resources, and removes what it made after every case, also after one that failed
//! or was stopped.

mod acquiring;
mod bench;
mod broken_off;
mod reading;
mod recorders;
mod releasing;
mod subject;
mod suite;
mod verdict;

pub use subject::Subject;
pub use suite::{Case, CaseResult, Outcome, count, run, run_until};
