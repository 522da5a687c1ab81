//! Moves a finished download to its place: by a rename, or merged into an existing folder, as `cp -r` does.
//!
//! Nothing is written through a link: a link in the way is an error, and nothing is changed then.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode};

use super::unpack::{FOLDER, kind};

/// Moves an entry of one folder to a name in another; `shown` is the destination for messages.
pub(in crate::host) fn move_to(
    from: BorrowedFd<'_>,
    name: &OsStr,
    to: BorrowedFd<'_>,
    as_name: &OsStr,
    shown: &Path,
) -> io::Result<()> {
    check_way(from, name, to, as_name, shown)?;
    merge(from, name, to, as_name)
}

/// Checks that nothing is in the way, before anything is moved.
fn check_way(from: BorrowedFd<'_>, name: &OsStr, to: BorrowedFd<'_>, as_name: &OsStr, shown: &Path) -> io::Result<()> {
    let in_the_way = |what: &str| Err(io::Error::other(format!("{} is {what}; nothing was copied", shown.display())));
    let comes = kind(from, name)?;
    match (comes, kind(to, as_name)?) {
        (_, None) => Ok(()),
        (_, Some(FileType::Symlink)) => in_the_way("a link here"),
        (Some(FileType::Directory), Some(FileType::Directory)) => {
            let (from, to) = (open(from, name)?, open(to, as_name)?);
            for name in names(from.as_fd())? {
                check_way(from.as_fd(), &name, to.as_fd(), &name, &shown.join(&name))?;
            }
            Ok(())
        }
        (_, Some(FileType::Directory)) => in_the_way("a folder here"),
        (Some(FileType::Directory), Some(_)) => in_the_way("not a folder here"),
        (_, Some(FileType::RegularFile)) => Ok(()),
        (_, Some(_)) => in_the_way("not a file here"),
    }
}

fn merge(from: BorrowedFd<'_>, name: &OsStr, to: BorrowedFd<'_>, as_name: &OsStr) -> io::Result<()> {
    let is_folder = |found| found == Some(FileType::Directory);
    if !is_folder(kind(from, name)?) || !is_folder(kind(to, as_name)?) {
        // A rename replaces a link and never follows it.
        return Ok(rustix::fs::renameat(from, name, to, as_name)?);
    }
    let (from, to) = (open(from, name)?, open(to, as_name)?);
    for name in names(from.as_fd())? {
        merge(from.as_fd(), &name, to.as_fd(), &name)?;
    }
    Ok(())
}

fn open(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(folder, name, FOLDER, Mode::empty())?)
}

/// The names in a folder.
pub(in crate::host) fn names(folder: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// Where a copy goes: into a folder under its own name, or to exactly the given name.
pub(in crate::host) struct Place {
    /// The folder.
    pub(in crate::host) folder: PathBuf,
    /// The name in it.
    pub(in crate::host) name: OsString,
}

impl Place {
    /// The place meant by a path; a folder, and any path that ends with `/`, receives the copy inside it.
    pub(in crate::host) fn of(goal: &Path, name: &OsStr) -> Self {
        let takes_in = goal.is_dir() || goal.as_os_str().as_bytes().ends_with(b"/");
        let (folder, name) = match goal.file_name() {
            Some(given) if !takes_in => (goal.parent().unwrap_or(Path::new("/")), given),
            _ => (goal, name),
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        Self { folder: folder.to_owned(), name: name.to_owned() }
    }

    /// The full path, for messages.
    pub(in crate::host) fn shown(&self) -> PathBuf {
        self.folder.join(&self.name)
    }
}
