//! `gpucl agent`: a background process on the user's machine that enforces a cluster's deadline, or waits for hosts
//! that become available later.
//!
//! No command depends on it, and each command restarts a deadline's agent that was killed.

pub mod clock;
pub mod credential;
pub mod decide;
pub mod end;
mod ended;
mod ends;
mod errand;
pub mod given;
mod job_end;
pub mod limits;
pub mod notice;
mod scheduled_up;
pub mod seen;
mod watch;
pub mod watcher;

pub use ended::Ended;
pub use job_end::JobEnd;
pub use scheduled_up::ScheduledUp;
pub use watch::{Watched, watch};
