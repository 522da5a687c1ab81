//! Unpacks an untrusted tar stream from a host into a new folder: one entry of the requested name, with plain files,
//! folders and links that stay within it. [`super::place`] moves it to its place.
//!
//! Folders are opened one by one, never through a link, and each file is newly created: whatever the stream contains,
//! nothing outside the folder is touched.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};
use std::rc::Rc;

use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};

use crate::util::folder::FOLDER;
use crate::util::human;

/// The most entries that a copy may have.
pub(in crate::host) const ENTRIES: u64 = 1_000_000;
/// How deep folders may be nested: as many are open at once while they are moved to their place.
pub(in crate::host) const DEPTH: usize = 128;
/// Bytes allowed between two entries: names too long for a header.
const BETWEEN: u64 = 256 * 1024;
/// Bytes allowed after the end of an archive; `tar` pads its last record.
const AFTER_END: u64 = 1024 * 1024;
/// How many of the left-out entries are listed by name.
const NAMED: usize = 20;

/// How much may arrive.
#[derive(Debug, Clone, Copy)]
pub(in crate::host) struct UnpackLimits {
    /// Bytes of files.
    pub(in crate::host) bytes: u64,
    /// Entries of any kind.
    pub(in crate::host) entries: u64,
}

impl UnpackLimits {
    /// The free space of a folder's file system, less a twentieth: a full disk harms more than this copy.
    pub(in crate::host) fn of(folder: impl AsFd) -> io::Result<Self> {
        let free = rustix::fs::fstatvfs(folder)?;
        let bytes = free.f_bavail.saturating_mul(free.f_frsize);
        // Some file systems have no inode limit.
        let entries = if free.f_files == 0 { ENTRIES } else { ENTRIES.min(free.f_favail) };
        Ok(Self { bytes: bytes - bytes / 20, entries })
    }
}

/// The entries left out of a copy, with the reasons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The first of them, with the reason: `results/pipe: it is not a file, folder or link`.
    pub named: Vec<String>,
    /// How many there are in all.
    pub count: usize,
}

impl LeftOut {
    /// Adds an entry with the reason.
    pub(in crate::host) fn add(&mut self, path: &Path, why: &str) {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(format!("{}: {why}", path.display()));
        }
    }
}

/// Why nothing was copied.
#[derive(Debug)]
pub(in crate::host) enum Refusal {
    /// The stream holds something that was not requested, or more than fits: no more of it is read.
    Unwanted(String),
    /// The stream is not a complete archive: the host's stderr may say why.
    Broken(String),
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self::Unwanted(format!("it cannot be written here: {error}"))
    }
}

/// Unpacks a stream into a new folder; after a refusal the caller removes the folder with its contents.
pub(super) fn unpack(
    stream: impl Read,
    land: BorrowedFd<'_>,
    name: &OsStr,
    limits: UnpackLimits,
) -> Result<LeftOut, Refusal> {
    unpack_into(stream, land, Some(name), limits)
}

/// Unpacks entries of any name into a new folder, which stands for the folder that they are from.
pub(in crate::host) fn unpack_all(
    stream: impl Read,
    land: BorrowedFd<'_>,
    limits: UnpackLimits,
) -> Result<LeftOut, Refusal> {
    unpack_into(stream, land, None, limits)
}

fn unpack_into(
    stream: impl Read,
    land: BorrowedFd<'_>,
    name: Option<&OsStr>,
    limits: UnpackLimits,
) -> Result<LeftOut, Refusal> {
    // The `tar` crate keeps long names in memory, whatever their length.
    let between = Rc::new(Cell::new(BETWEEN));
    let mut archive = Archive::new(Metered { stream, left: Rc::clone(&between) });
    let mut landing = Landing { land, name, limits, left_out: LeftOut::default(), has_begun: false };
    for entry in archive.entries().map_err(broken)? {
        between.set(u64::MAX);
        landing.take(entry.map_err(broken)?)?;
        between.set(BETWEEN);
    }
    between.set(AFTER_END);
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(broken)?;
    if !landing.has_begun && name.is_some() {
        return Err(match landing.left_out.named.pop() {
            Some(why) => Refusal::Unwanted(why),
            None => Refusal::Broken("it sent nothing".to_owned()),
        });
    }
    Ok(landing.left_out)
}

fn broken(error: io::Error) -> Refusal {
    if error.kind() == io::ErrorKind::FileTooLarge {
        return Refusal::Unwanted(error.to_string());
    }
    Refusal::Broken(format!("it did not send a complete archive: {error}"))
}

/// A stream with a limit on the bytes that may still be read.
struct Metered<R> {
    stream: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(into)?;
        match self.left.get().checked_sub(read as u64) {
            Some(left) => self.left.set(left),
            None => {
                let why = "it sent more between two entries, or after the last one, than any archive has";
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
            }
        }
        Ok(read)
    }
}

/// The folder to unpack into, and what was unpacked.
struct Landing<'a> {
    land: BorrowedFd<'a>,
    /// The requested entry; `None` when entries of several names were.
    name: Option<&'a OsStr>,
    limits: UnpackLimits,
    left_out: LeftOut,
    /// The requested entry exists.
    has_begun: bool,
}

impl Landing<'_> {
    fn take(&mut self, mut entry: Entry<'_, impl Read>) -> Result<(), Refusal> {
        let path = entry.path_bytes().into_owned();
        let path = Path::new(OsStr::from_bytes(&path));
        let parts = self.parts(path)?;
        let Some((leaf, above)) = parts.split_last() else {
            return Err(Refusal::Unwanted(format!("it sent `{}`, which has no name", path.display())));
        };
        self.limits.entries = self.limits.entries.checked_sub(1).ok_or_else(|| {
            Refusal::Unwanted(format!("it sent more entries than there is room for here, or more than {ENTRIES}"))
        })?;
        let parent = self.folder(above, path)?;
        let parent = parent.as_ref().map_or(self.land, AsFd::as_fd);
        match entry.header().entry_type() {
            EntryType::Directory => self.make_folder(parent, leaf, path, &entry)?,
            EntryType::Regular | EntryType::Continuous => self.make_file(parent, leaf, path, &mut entry)?,
            EntryType::Symlink => {
                let folders = above.len() + usize::from(self.name.is_none());
                self.make_link(parent, leaf, path, &entry, folders)?;
            }
            EntryType::Link => self.left_out.add(path, "it is a hard link to another file"),
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                self.left_out.add(path, "it is not a file, folder or link");
            }
            // Comments for the whole archive, which are ignored.
            EntryType::XGlobalHeader => {}
            other => {
                let kind = other.as_byte().escape_ascii();
                return Err(Refusal::Unwanted(format!("it sent `{}` of an unknown kind `{kind}`", path.display())));
            }
        }
        Ok(())
    }

    /// The components of an entry's path; the first is the requested name.
    fn parts(&self, path: &Path) -> Result<Vec<OsString>, Refusal> {
        let unwanted = |why: &str| Refusal::Unwanted(format!("it sent `{}`, {why}", path.display()));
        let mut parts = Vec::new();
        for part in path.components() {
            match part {
                Component::Normal(name) => parts.push(name.to_owned()),
                Component::CurDir => {}
                _ => return Err(unwanted("which leads out of the folder")),
            }
        }
        if let (Some(name), Some(first)) = (self.name, parts.first())
            && first != name
        {
            return Err(unwanted(&format!("but `{}` was requested", name.display())));
        }
        if parts.len() > DEPTH {
            return Err(unwanted(&format!("which is more than {DEPTH} folders deep")));
        }
        Ok(parts)
    }

    /// Opens the folder at these names, each of which must be a folder sent before; `None` for the top folder.
    fn folder(&self, names: &[OsString], path: &Path) -> Result<Option<OwnedFd>, Refusal> {
        let mut folder: Option<OwnedFd> = None;
        for name in names {
            let above = folder.as_ref().map_or(self.land, AsFd::as_fd);
            let opened = rustix::fs::openat(above, name, FOLDER, Mode::empty());
            folder = Some(opened.map_err(|_| {
                let (path, name) = (path.display(), name.display());
                Refusal::Unwanted(format!("it sent `{path}`, but `{name}` is not a folder sent before"))
            })?);
        }
        Ok(folder)
    }

    fn make_folder(
        &mut self,
        parent: BorrowedFd<'_>,
        leaf: &OsStr,
        path: &Path,
        entry: &Entry<'_, impl Read>,
    ) -> Result<(), Refusal> {
        // The user can always list and remove it.
        rustix::fs::mkdirat(parent, leaf, mode(entry) | Mode::RWXU).map_err(|error| made(path, error))?;
        self.has_begun = true;
        Ok(())
    }

    fn make_file(
        &mut self,
        parent: BorrowedFd<'_>,
        leaf: &OsStr,
        path: &Path,
        entry: &mut Entry<'_, impl Read>,
    ) -> Result<(), Refusal> {
        let size = entry.size();
        self.limits.bytes = self.limits.bytes.checked_sub(size).ok_or_else(|| {
            let (size, free) = (human::bytes(size), human::bytes(self.limits.bytes));
            Refusal::Unwanted(format!("`{}` is {size}, but there is room for only {free} more", path.display()))
        })?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, leaf, flags, mode(entry)).map_err(|error| made(path, error))?;
        self.has_begun = true;
        let mut file = File::from(file);
        let wrote = match io::copy(entry, &mut file) {
            Ok(wrote) => wrote,
            Err(error) if is_of_this_machine(&error) => {
                return Err(made(path, Errno::from_io_error(&error).unwrap_or(Errno::IO)));
            }
            Err(error) => return Err(Refusal::Broken(format!("`{}`: {error}", path.display()))),
        };
        if wrote != size {
            return Err(Refusal::Broken(format!("`{}` was cut after {}", path.display(), human::bytes(wrote))));
        }
        if let Some(seconds) = entry.header().mtime().ok().and_then(|time| i64::try_from(time).ok()) {
            let times = Timestamps {
                last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                last_modification: Timespec { tv_sec: seconds, tv_nsec: 0 },
            };
            // A time that this file system cannot store is no reason to lose the file.
            let _ = rustix::fs::futimens(&file, &times);
        }
        Ok(())
    }

    fn make_link(
        &mut self,
        parent: BorrowedFd<'_>,
        leaf: &OsStr,
        path: &Path,
        entry: &Entry<'_, impl Read>,
        depth: usize,
    ) -> Result<(), Refusal> {
        let target = entry.link_name_bytes().unwrap_or_default().into_owned();
        let target = Path::new(OsStr::from_bytes(&target));
        if !stays_within(target, depth) {
            let why = format!("it is a link that leads out of the copy, to `{}`", target.display());
            self.left_out.add(path, &why);
            return Ok(());
        }
        rustix::fs::symlinkat(target, parent, leaf).map_err(|error| made(path, error))?;
        self.has_begun = true;
        Ok(())
    }
}

/// Whether writing the file failed, rather than reading the stream.
fn is_of_this_machine(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn made(path: &Path, error: Errno) -> Refusal {
    let path = path.display();
    Refusal::Unwanted(match error {
        Errno::EXIST => format!("it sent `{path}` twice"),
        error => format!("`{path}` cannot be created here: {error}"),
    })
}

/// The permissions of an entry, without setuid, setgid and sticky bits. The system applies the umask.
fn mode(entry: &Entry<'_, impl Read>) -> Mode {
    Mode::from_raw_mode(entry.header().mode().unwrap_or(0o644) & 0o777)
}

/// Whether a link that is `depth` folders deep leads to something in the copy itself.
///
/// `..` is allowed only at its beginning: there the folders are real, and their number is known. Later it could go up
/// from wherever another link leads.
fn stays_within(target: &Path, depth: usize) -> bool {
    let mut up = 0;
    let mut is_down = false;
    for part in target.components() {
        match part {
            Component::ParentDir if !is_down => up += 1,
            Component::Normal(_) => is_down = true,
            Component::CurDir => {}
            _ => return false,
        }
    }
    // The first of the folders is the copy itself.
    up < depth && (up > 0 || is_down)
}

#[cfg(test)]
mod tests;
