//! The checks of a cluster: ready means that every one of them passed, and each says what it saw.

mod checks;
mod ports;
mod probe;
mod subject;
mod token;
mod wait;

pub use checks::run;
pub use subject::{Subject, access_of, endpoints};
pub use wait::wait_ready;
