//! Makes a plan from what is desired, known and observed. Pure: no I/O, no clock. Tests compare the plan's text.

mod desired;
mod machine;
mod observed;
mod operation;
mod price;
mod reconcile;
mod remnant;
mod share;
#[cfg(test)]
mod tests;

pub use desired::{
    DataGoal, Desired, FirewallGoal, NodeRequest, Preparation, ProjectRequest, desired, limits, small_shared_memory,
};
pub use machine::Machine;
pub use observed::{Health, Observed, ObservedNode, ObservedProject};
pub use operation::{Action, Change, HostAction, NodeChange, Operation, Plan, ResourceAction};
pub use price::Price;
pub use reconcile::{Goal, Outcome, reconcile};
pub use remnant::{NamedRemnant, Remnant};
