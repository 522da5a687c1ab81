//! What `up` does when its provider has none of what is asked for, or when what came cannot be used.
//!
//! [`decide`] is pure. [`rounds`] runs the plan until it is done, and plans anew in between: gives back, takes the next choice, makes once
//! more, waits. [`hunting`] does the same for one branch while the others go on. [`hunt`] is the waiting: one look at the provider for
//! all who wait.

mod decide;
mod hunt;
mod hunting;
mod rounds;

pub(super) use hunt::Hunt;
pub(super) use hunting::Hunting;
pub(super) use rounds::carry_to;
