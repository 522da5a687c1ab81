//! The ways a stage can end.

use std::time::Duration;

/// How the stage ended, as the host reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// It succeeded now or earlier.
    Done,
    /// A step failed.
    Failed { code: String },
    /// A step was ended at its own limit or the stage's.
    TimedOut { limit: Duration, of_step: bool },
    /// Another gpucl command ended the program.
    Ended,
    /// The program disappeared without a result.
    Died,
    /// The program is still running past its limit.
    Stuck,
    /// A reboot of the machine was requested.
    Reboot,
}
