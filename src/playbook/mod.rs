//! Playbooks: data that brings a host to a state, compiled into one shell program per stage.
//!
//! One exec delivers the program and its files, starts it detached under a host-wide lock, and follows its log. The program goes
//! on when the exec, gpucl or the link dies; the next exec attaches to it. `docs/concepts/host-programs.md` tells the
//! whole story, `shell/` holds the programs' text.

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

pub use definition::{Has, Playbook, When, load};
pub use facts::{Facts, GpuFact, PythonFact, Vendor};
pub use inspect::{Inspection, StageState, facts, glance, inspect};
pub use run::{end_program, program_text, run_stage};
pub use stage::{KnownError, Stage, StageReport, Step, StepReport};
