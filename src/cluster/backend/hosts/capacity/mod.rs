//! What `up` does when its provider has none of what is asked for, or when what came cannot be used.
//!
//! [`decide`] is pure. [`rounds`] runs the plan until it is done, and plans anew in between: gives back, takes the next choice, makes once
//! more, waits. [`hunting`] does the same for one branch while the others go on. [`hunt`] is the waiting: one look at the provider for
//! all who wait.

mod decide;
mod replan;
mod rounds;
mod wait;

pub(super) use replan::CapacityReplan;
pub(super) use rounds::carry_to;
pub(super) use wait::CapacityWait;
