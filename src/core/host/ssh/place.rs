//! Where a copy to this machine goes. [`move_to`] moves what has arrived there: by a rename, or merged into an existing
//! folder, as `cp -r` does.
//!
//! Nothing is written through a link: a link in the way is an error, and nothing is changed then.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

pub(super) use crate::util::folder::move_to;

/// Where a copy goes: into a folder under its own name, or to exactly the given name.
pub(super) struct Place {
    /// The folder.
    pub(super) folder: PathBuf,
    /// The name in it.
    pub(super) name: OsString,
}

impl Place {
    /// The place meant by a path; a folder, and any path that ends with `/`, receives the copy inside it.
    pub(super) fn of(goal: &Path, name: &OsStr) -> Self {
        let takes_in = goal.is_dir() || goal.as_os_str().as_bytes().ends_with(b"/");
        let (folder, name) = match goal.file_name() {
            Some(given) if !takes_in => (goal.parent().unwrap_or(Path::new("/")), given),
            _ => (goal, name),
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        Self { folder: folder.to_owned(), name: name.to_owned() }
    }

    /// The full path, for messages.
    pub(super) fn shown(&self) -> PathBuf {
        self.folder.join(&self.name)
    }
}
