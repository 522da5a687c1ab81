//! Exit codes, a stable interface: `docs/reference/exit-codes.md` lists them, and a test compares the two.

use crate::error::ErrorKind;

/// Success.
pub const DONE: u8 = 0;
/// Any other failure.
pub const FAILED: u8 = 1;
/// The command line, the spec or the selected cluster is wrong; nothing was changed.
pub const USAGE: u8 = 2;
/// The cluster runs, but a check did not pass.
pub const NOT_READY: u8 = 3;
/// Another gpucl process is working on this cluster.
pub const LOCKED: u8 = 4;
/// Something of the cluster is left after `down`.
pub const LEFT_BEHIND: u8 = 5;
/// No such cluster, job or node.
pub const NOT_FOUND: u8 = 6;
/// A wait timed out.
pub const TIMEOUT: u8 = 7;
/// The provider has no capacity for the request now.
pub const NO_CAPACITY: u8 = 8;
/// Interrupted with Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// The exit code of a kind of error.
pub fn of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Usage | ErrorKind::Spec | ErrorKind::Unsupported => USAGE,
        ErrorKind::NotReady => NOT_READY,
        ErrorKind::Locked => LOCKED,
        ErrorKind::LeftBehind => LEFT_BEHIND,
        ErrorKind::NotFound => NOT_FOUND,
        ErrorKind::Timeout => TIMEOUT,
        ErrorKind::Capacity => NO_CAPACITY,
        ErrorKind::Cancelled => INTERRUPTED,
        _ => FAILED,
    }
}
