//! Observes, plans, and walks the plan. It decides nothing that the plan does not say.
//!
//! ```text
//! store (journal, snapshot) --+
//! world.observe --------------+--> plan::reconcile --> executor --> world.perform
//!                                                         |  journal before and after each call
//! ```

mod cancel;
mod executor;
mod ledger;
mod pipeline;
mod world;

pub use cancel::{Cancel, CancelHandle, Urgency};
pub use executor::{Executed, execute};
pub use ledger::Ledger;
pub use pipeline::{Pipeline, Planned};
pub use world::World;
