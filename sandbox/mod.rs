//! Stand-ins of services, for tests, for the README and for whoever wants to try gpucl without an account.
//!
//! They are no mocks of gpucl's own making: each answers what the real service was seen to answer, and remembers what it was asked for.

mod answer;
pub mod chameleon;
#[cfg(test)]
mod client;
mod clock;
mod control;
mod door;
mod faults;
pub mod hosts;
mod ids;
pub mod lambda;
mod shared;
mod wire;

pub use door::CONTROL_HEADER;
