//! How stages end.

use std::time::Duration;

/// How the stage ended, as the host told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// It succeeded, or had succeeded before.
    Done,
    /// A step failed.
    Failed { code: String },
    /// A step was ended at a limit.
    TimedOut { limit: Duration, of_step: bool },
    /// The program was ended by a command of ours.
    Ended,
    /// The program was gone without a result.
    Died,
    /// The program did not end at its limit.
    Stuck,
    /// The machine was told to start anew.
    Reboot,
}
