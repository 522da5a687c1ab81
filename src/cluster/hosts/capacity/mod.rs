//! What is decided when a provider lacks capacity, or when an acquired host is unusable.
//!
//! [`decide`] is pure. [`wait`] is the capacity wait: all waiting branches share one query to the provider per poll.
//! What follows from a decision is carried out above: by `rounds` for the whole plan, by `replan` for one branch while
//! the others go on.

mod decide;
mod wait;

pub(super) use decide::{AfterRefusal, AfterRun, PlanRun, Tried};
pub(super) use wait::{CapacityWait, Next};
