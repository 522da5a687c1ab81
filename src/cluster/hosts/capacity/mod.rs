//! What `up` does when its provider lacks capacity, or when an acquired host is unusable.
//!
//! [`decide`] is pure. [`rounds`] runs the plan until it is done and replans in between: it releases, takes the next
//! choice, recreates, or waits. [`replan`] does the same for one branch while the others go on. [`wait`] is the
//! capacity wait: all waiting branches share one query to the provider per poll.

mod decide;
mod replan;
mod rounds;
mod wait;

pub(super) use rounds::carry_to;
pub(super) use wait::CapacityWait;
