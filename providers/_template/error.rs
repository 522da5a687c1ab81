//! Classifies the cloud's errors: whether a retry may help, and what is left behind.

use std::io::ErrorKind as Io;

use crate::error::{Error, ErrorKind, LeftBehind, Status};
use crate::provider::FieldError;

/// Whether the error says that the resource does not exist.
pub(super) fn is_gone(failure: &std::io::Error) -> bool {
    failure.kind() == Io::NotFound
}

/// Classifies an error. For a real cloud, distinguish answers by their codes, and by their text where codes are wrong.
pub(super) fn of(doing: &str, failure: &std::io::Error) -> Error {
    let (status, left) = match failure.kind() {
        // Refused before anything was done.
        Io::InvalidInput | Io::PermissionDenied | Io::NotFound | Io::StorageFull => {
            (Status::Permanent, LeftBehind::Clear)
        }
        // Unknown whether it was done; `observe` shows it.
        Io::TimedOut | Io::ConnectionReset | Io::Interrupted => (Status::Temporary, LeftBehind::Unknown),
        _ => (Status::Permanent, LeftBehind::Unknown),
    };
    Error::new(ErrorKind::Provider, doing).caused_by(failure).status(status).left(left)
}

/// The error for invalid settings.
pub(super) fn wrong_settings(errors: &[FieldError]) -> Error {
    let texts = errors.iter().map(|error| format!("`{}`: {}", error.path, error.message)).collect::<Vec<_>>();
    Error::new(ErrorKind::Provider, "read the settings").because(texts.join(", "))
}
