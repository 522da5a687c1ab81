//! `gpucl agent`: what outlives a command on the user's machine. It looks after a cluster's deadline, or waits for hosts that can be had
//! later.
//!
//! Nothing depends on its life: each command works without it, and starts again what looks after a deadline.

mod armed;
pub mod deadline;
mod ended;
mod watch;

pub use armed::Armed;
pub use ended::Ended;
pub use watch::{Watched, watch};
