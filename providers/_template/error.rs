//! What an error of the cloud means: may it be tried again, and what does it leave behind?

use std::io::ErrorKind as Io;

use crate::error::{Error, ErrorKind, LeftBehind, Status};
use crate::provider::FieldError;

/// It says that the thing is not there.
pub(super) fn is_gone(failure: &std::io::Error) -> bool {
    failure.kind() == Io::NotFound
}

/// Gives an error its class. A real cloud's answers are told apart by their codes, and by their text where codes lie.
pub(super) fn of(doing: &str, failure: &std::io::Error) -> Error {
    let (status, left) = match failure.kind() {
        // It was refused before anything was done.
        Io::InvalidInput | Io::PermissionDenied | Io::NotFound | Io::StorageFull => {
            (Status::Permanent, LeftBehind::Clear)
        }
        // Nobody knows whether it was done; `observe` tells.
        Io::TimedOut | Io::ConnectionReset | Io::Interrupted => (Status::Temporary, LeftBehind::Unknown),
        _ => (Status::Permanent, LeftBehind::Unknown),
    };
    Error::new(ErrorKind::Provider, doing).caused_by(failure).status(status).left(left)
}

/// The request does not even have the right form.
pub(super) fn wrong_settings(errors: &[FieldError]) -> Error {
    let told = errors.iter().map(|error| format!("`{}`: {}", error.path, error.message)).collect::<Vec<_>>();
    Error::new(ErrorKind::Provider, "read the settings").because(told.join(", "))
}
