//! Folders of this machine that are opened one by one, and never through a link.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::tree::{Below, os};
use crate::util::folder::{names, step};

/// An error with the path that it is about.
pub(super) fn at(path: &[u8], error: Errno) -> std::io::Error {
    let why = match error {
        Errno::LOOP | Errno::NOTDIR => "it is a link or no folder; nothing was written through it".to_owned(),
        error => std::io::Error::from(error).to_string(),
    };
    std::io::Error::other(format!("{}: {why}", os(path).display()))
}

/// Removes an entry with everything in it, following no link.
pub(super) fn remove(folder: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    let inner = step(folder, name)?;
    for name in names(inner.as_fd()).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))? {
        remove(inner.as_fd(), &name)?;
    }
    rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)
}

/// The folders below a top folder; the last one stays open.
pub(super) struct Folders<'a> {
    top: BorrowedFd<'a>,
    last: Option<(Below, OwnedFd)>,
}

impl<'a> Folders<'a> {
    pub(super) fn new(top: BorrowedFd<'a>) -> Self {
        Self { top, last: None }
    }

    /// Opens the folder at a path, name by name and through no link.
    pub(super) fn open(&mut self, path: &[u8]) -> rustix::io::Result<BorrowedFd<'_>> {
        if path.is_empty() {
            return Ok(self.top);
        }
        if self.last.as_ref().is_none_or(|(last, _)| last != path) {
            let mut folder: Option<OwnedFd> = None;
            for name in path.split(|byte| *byte == b'/') {
                let above = folder.as_ref().map_or(self.top, AsFd::as_fd);
                folder = Some(step(above, OsStr::from_bytes(name))?);
            }
            self.last = folder.map(|folder| (path.to_vec(), folder));
        }
        Ok(self.last.as_ref().map_or(self.top, |(_, folder)| folder.as_fd()))
    }
}
