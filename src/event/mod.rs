//! What happens, as typed events: the one interface between the core and whatever shows or records it.
//!
//! `--output json` is these events as JSON lines. Their form is an interface: it has a version, fields
//! are added but not renamed, and `docs/reference/json.md` describes it.

mod bus;
mod dispatch;
mod kind;
mod record;

pub use bus::{Bus, Inbox};
pub use dispatch::{Sink, dispatch};
pub use kind::{CheckOutcome, Endpoint, Event, EventKind, Finish, StepOutcome, WorkerGpus};
pub use record::RunRecord;
