//! `gpucl agent`: what outlives a command on the user's machine. It looks after a cluster's deadline, or waits for hosts that can be had
//! later.
//!
//! Nothing depends on its life: each command works without it, and starts again what looks after a deadline.

pub mod deadline;
mod ended;
mod scheduled_up;
mod watch;

pub use ended::Ended;
pub use scheduled_up::ScheduledUp;
pub use watch::{Watched, watch};
