//! Loads a spec from a file.

use std::path::Path;

use super::Spec;
use crate::error::{Error, ErrorKind, Result};

/// Loads, checks and fills in the spec in this file.
pub fn load(path: &Path) -> Result<Spec> {
    Err(Error::new(ErrorKind::Internal, format!("load {}", path.display())))
}
