//! Playbooks: data that brings a host to a state, compiled into one shell program per stage.
//!
//! One exec delivers the program and its files, starts it detached under a host-wide lock, and follows its log. The
//! program survives the exec, gpucl and the connection; the next exec attaches to it. `docs/concepts/host-programs.md`
//! describes this in full, `shell/` holds the program text.

mod cause;
mod compile;
mod definition;
mod end;
mod facts;
mod follow;
#[cfg(test)]
mod fuzz;
mod inspect;
mod restart;
mod run;
mod stage;
mod variable;

pub use definition::{Has, Playbook, When, load};
pub use facts::{Capacity, Facts, GpuFact, Limit, LimitOf, PythonFact, RunAs, Vendor, capacity_here};
pub use inspect::{Inspection, StageState, facts, glance, inspect};
pub use run::{end_program, program_text, run_stage};
pub use stage::{KnownError, Stage, StageReport, Step, StepReport};
pub use variable::Variable;
