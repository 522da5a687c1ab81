//! Observes, plans, and executes the plan. All decisions are in the plan.
//!
//! ```text
//! store (journal, snapshot) --+
//! world.observe --------------+--> plan::reconcile --> executor --> write_ahead: journal, a call to the world, journal
//!                                                         ^                          |
//!                                                         +---- replan <-- refused for lack of capacity
//! ```

mod cancel;
mod executor;
mod ledger;
mod pipeline;
pub mod recovery;
mod replan;
mod world;
pub mod write_ahead;

pub use cancel::{By, Cancel, CancelHandle, Urgency};
pub use executor::Executed;
pub use ledger::Ledger;
pub use pipeline::{Pipeline, Planned};
pub use replan::{NothingElse, Replan};
pub use world::{Hosts, World};
