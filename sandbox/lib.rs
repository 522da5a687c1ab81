//! Stand-ins for cloud services: for tests, for the README, and for trying gpucl without an account.
//!
//! They are not mocks of gpucl's own interfaces: each answers as the real service does, by observation or by its
//! documents, and keeps state.

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
mod server;
mod shared;

use gpucl_core::error;
use gpucl_core::util;

pub use door::CONTROL_HEADER;
