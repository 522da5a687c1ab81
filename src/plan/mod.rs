//! From what is desired, known and observed to a plan. Pure: no I/O, no clock; tested by its text form.

mod desired;
mod observed;
mod operation;
mod price;
mod reconcile;
#[cfg(test)]
mod tests;

pub use desired::{Desired, FirewallGoal, Machine, NodeRequest, Preparation, ProjectRequest, desired};
pub use observed::{Health, Observed, ObservedNode, ObservedProject};
pub use operation::{Action, Change, NodeChange, Operation, Plan};
pub use price::Price;
pub use reconcile::{Goal, Outcome, reconcile};
