//! `gpucl agent`: a background process on the user's machine that enforces a cluster's deadline, or waits for hosts
//! that become available later.
//!
//! No command depends on it, and each command restarts a deadline's agent that was killed.

pub mod deadline;
mod ended;
mod scheduled_up;
mod watch;

pub use ended::Ended;
pub use scheduled_up::ScheduledUp;
pub use watch::{Watched, watch};
