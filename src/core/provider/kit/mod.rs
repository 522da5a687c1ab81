//! The kit for providers that call a service: parts that each may use, and that the contract does not ask for.

mod consistency;
pub mod http;
mod retry;

pub use consistency::ConsistencyDelay;
pub use retry::{Again, Call, FailureClass, Patience};
