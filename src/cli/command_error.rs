//! Constructors of errors that only the command line raises.

use crate::error::{Error, ErrorKind};

/// An internal error: a bug in gpucl, or a failure of the system.
pub(crate) fn internal(doing: &str, error: &dyn std::error::Error) -> Error {
    Error::new(ErrorKind::Internal, doing).caused_by(error)
}

/// A usage error: the command line is wrong.
pub(crate) fn usage(doing: impl Into<String>, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Usage, doing).because(cause)
}

/// The error for a folder that files were to be written into, where something is in the way.
pub(crate) fn nothing_written(error: Error) -> Error {
    error.because("nothing was written").hint("remove what is in the way, or name another folder with --to")
}
