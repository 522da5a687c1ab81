//! Typed events: the only interface between the core and the code that shows or records what happens.
//!
//! `--output json` prints these events as JSON lines. The format is a public interface with a version: fields
//! are added but not renamed. `docs/reference/json.md` describes it.

mod bus;
mod dispatch;
mod kind;
mod record;

pub use bus::{Bus, Inbox};
pub use dispatch::{Sink, dispatch};
pub use kind::{CheckOutcome, Endpoint, Event, EventKind, Finish, StepOutcome, WorkerGpus};
pub use record::RunRecord;
