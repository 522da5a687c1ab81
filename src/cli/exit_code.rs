//! The exit codes. They are an interface: `docs/reference/exit-codes.md` lists them, a test compares the two.

use crate::error::ErrorKind;

/// It did what it was to do.
pub const DONE: u8 = 0;
/// It failed.
pub const FAILED: u8 = 1;
/// The command line, the spec or the choice of a cluster is wrong; nothing was changed.
pub const USAGE: u8 = 2;
/// The cluster runs, but a check did not pass.
pub const NOT_READY: u8 = 3;
/// Another gpucl works on this cluster.
pub const LOCKED: u8 = 4;
/// Something of the cluster is left after `down`.
pub const LEFT_BEHIND: u8 = 5;
/// No such cluster, job or node.
pub const NOT_FOUND: u8 = 6;
/// A wait reached its limit.
pub const TIMEOUT: u8 = 7;
/// A provider has none of what was asked for now.
pub const NO_CAPACITY: u8 = 8;
/// It was stopped with Ctrl-C.
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
