//! Small makers of errors that only the command line has.

use crate::error::{Error, ErrorKind};

/// A mistake of ours or of the system.
pub(crate) fn internal(doing: &str, error: &dyn std::error::Error) -> Error {
    Error::new(ErrorKind::Internal, doing).caused_by(error)
}

/// A wrong command line.
pub(crate) fn usage(doing: impl Into<String>, cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Usage, doing).because(cause)
}
