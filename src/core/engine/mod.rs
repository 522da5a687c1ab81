//! Observes, plans, and executes the plan. All decisions are in the plan.
//!
//! ```text
//! store (journal, snapshot) --+
//! world.observe --------------+--> plan::reconcile --> executor --> write_ahead: journal, world.perform, journal
//!                                                         ^                          |
//!                                                         +---- replan <-- refused for lack of capacity
//! ```

mod cancel;
mod executor;
mod ledger;
mod pipeline;
mod replan;
mod world;
pub mod write_ahead;

pub use cancel::{Cancel, CancelHandle, Urgency};
pub use executor::Executed;
pub use ledger::Ledger;
pub use pipeline::{Pipeline, Planned};
pub use replan::{NothingElse, Replan};
pub use world::World;
