//! Unpacks what a host sends, of which nothing is believed: one entry of the name that was asked for, plain files, folders and links
//! that stay within it, in a folder that is new. How it gets to its place is in [`super::settle`].
//!
//! Folders are opened one by one, never through a link, and each file is made anew: whatever the stream says, nothing outside of the
//! folder is touched.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};

use crate::util::human;

/// How many entries a copy may have.
const ENTRIES: u64 = 1_000_000;
/// How many folders may be in each other: as many are open at once while they are brought to their place.
pub(super) const DEPTH: usize = 128;
/// How much may stand between two entries: names that are longer than a header has room for.
const BETWEEN: u64 = 256 * 1024;
/// How much may follow the end of an archive; `tar` fills its last record.
const AFTER_END: u64 = 1024 * 1024;
/// How many of the entries that were left out are told by name.
const NAMED: usize = 20;

/// How a folder is opened that must be one, and no link to one.
pub(super) const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How much may arrive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Bytes of files.
    pub(super) bytes: u64,
    /// Entries of any kind.
    pub(super) entries: u64,
}

impl Room {
    /// What the file system of a folder has free, but for a twentieth: a full disk harms more than this copy.
    pub(super) fn of(folder: impl AsFd) -> io::Result<Self> {
        let free = rustix::fs::fstatvfs(folder)?;
        let bytes = free.f_bavail.saturating_mul(free.f_frsize);
        // Some file systems do not count their entries.
        let entries = if free.f_files == 0 { ENTRIES } else { ENTRIES.min(free.f_favail) };
        Ok(Self { bytes: bytes - bytes / 20, entries })
    }
}

/// What was left out of a copy, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The first of them, with the reason: `results/pipe: it is no file, folder or link`.
    pub named: Vec<String>,
    /// How many there are in all.
    pub count: usize,
}

impl LeftOut {
    fn add(&mut self, path: &Path, why: &str) {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(format!("{}: {why}", path.display()));
        }
    }
}

/// Why nothing was taken.
#[derive(Debug)]
pub(super) enum Refusal {
    /// What came is not what was asked for, or more than there is room for: no more of it is read.
    Unwanted(String),
    /// What came is no whole archive: what the host says of it may tell why.
    Broken(String),
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self::Unwanted(format!("it cannot be written here: {error}"))
    }
}

/// Unpacks a stream into a folder that is new; what lies there after a refusal is to be removed with it.
pub(super) fn unpack(stream: impl Read, land: BorrowedFd<'_>, name: &OsStr, room: Room) -> Result<LeftOut, Refusal> {
    // The reader of archives keeps long names in memory, however long they are.
    let between = Rc::new(Cell::new(BETWEEN));
    let mut archive = Archive::new(Metered { stream, left: Rc::clone(&between) });
    let mut landing = Landing { land, name, room, left_out: LeftOut::default(), has_begun: false };
    for entry in archive.entries().map_err(broken)? {
        between.set(u64::MAX);
        landing.take(entry.map_err(broken)?)?;
        between.set(BETWEEN);
    }
    between.set(AFTER_END);
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(broken)?;
    if !landing.has_begun {
        return Err(match landing.left_out.named.pop() {
            Some(why) => Refusal::Unwanted(why),
            None => Refusal::Broken("nothing came".to_owned()),
        });
    }
    Ok(landing.left_out)
}

fn broken(error: io::Error) -> Refusal {
    if error.kind() == io::ErrorKind::FileTooLarge {
        return Refusal::Unwanted(error.to_string());
    }
    Refusal::Broken(format!("what came is no whole archive: {error}"))
}

/// A stream of which so much may be read.
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
                let why = "it sent more between two entries, or after the last, than any archive has there";
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
            }
        }
        Ok(read)
    }
}

/// The folder in which things land, and what has landed.
struct Landing<'a> {
    land: BorrowedFd<'a>,
    name: &'a OsStr,
    room: Room,
    left_out: LeftOut,
    /// The entry that was asked for is there.
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
        self.room.entries = self.room.entries.checked_sub(1).ok_or_else(|| {
            Refusal::Unwanted(format!("it sends more entries than there is room for here, or than {ENTRIES}"))
        })?;
        let parent = self.folder(above, path)?;
        let parent = parent.as_ref().map_or(self.land, AsFd::as_fd);
        match entry.header().entry_type() {
            EntryType::Directory => self.make_folder(parent, leaf, path, &entry)?,
            EntryType::Regular | EntryType::Continuous => self.make_file(parent, leaf, path, &mut entry)?,
            EntryType::Symlink => self.make_link(parent, leaf, path, &entry, above.len())?,
            EntryType::Link => self.left_out.add(path, "it is a second name of another file"),
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                self.left_out.add(path, "it is no file, folder or link");
            }
            // Comments for the whole archive; nothing of it is used.
            EntryType::XGlobalHeader => {}
            other => {
                let kind = other.as_byte().escape_ascii();
                return Err(Refusal::Unwanted(format!("it sent `{}` of an unknown kind `{kind}`", path.display())));
            }
        }
        Ok(())
    }

    /// The names on the way to an entry, of which the first is the one that was asked for.
    fn parts(&self, path: &Path) -> Result<Vec<OsString>, Refusal> {
        let unwanted = |why: &str| Refusal::Unwanted(format!("it sent `{}`, {why}", path.display()));
        let mut parts = Vec::new();
        for part in path.components() {
            match part {
                Component::Normal(name) => parts.push(name.to_owned()),
                Component::CurDir => {}
                _ => return Err(unwanted("which leads out of the folder it is for")),
            }
        }
        if parts.first().is_some_and(|first| first != self.name) {
            return Err(unwanted(&format!("and `{}` was asked for", self.name.display())));
        }
        if parts.len() > DEPTH {
            return Err(unwanted(&format!("which is more than {DEPTH} folders deep")));
        }
        Ok(parts)
    }

    /// Opens the folder that these names lead to, each of which must be a folder that came before; none for the place of landing.
    fn folder(&self, names: &[OsString], path: &Path) -> Result<Option<OwnedFd>, Refusal> {
        let mut folder: Option<OwnedFd> = None;
        for name in names {
            let above = folder.as_ref().map_or(self.land, AsFd::as_fd);
            let opened = rustix::fs::openat(above, name, FOLDER, Mode::empty());
            folder = Some(opened.map_err(|_| {
                let (path, name) = (path.display(), name.display());
                Refusal::Unwanted(format!("it sent `{path}`, and `{name}` is no folder that came before"))
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
        // Who copies it can always look into it, and remove it.
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
        self.room.bytes = self.room.bytes.checked_sub(size).ok_or_else(|| {
            let (size, free) = (human::bytes(size), human::bytes(self.room.bytes));
            Refusal::Unwanted(format!("`{}` is {size}, and here is room for {free} more", path.display()))
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
            // A time that this file system cannot keep is no reason to lose the file.
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
            let why = format!("it is a link out of what is copied, to `{}`", target.display());
            self.left_out.add(path, &why);
            return Ok(());
        }
        rustix::fs::symlinkat(target, parent, leaf).map_err(|error| made(path, error))?;
        self.has_begun = true;
        Ok(())
    }
}

/// It is the file that could not be written, and not the stream that could not be read.
fn is_of_this_machine(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

fn made(path: &Path, error: Errno) -> Refusal {
    let path = path.display();
    Refusal::Unwanted(match error {
        Errno::EXIST => format!("it sent `{path}` twice"),
        error => format!("`{path}` cannot be made here: {error}"),
    })
}

/// The rights of an entry: never those to become somebody else. What the umask takes, the system takes.
fn mode(entry: &Entry<'_, impl Read>) -> Mode {
    Mode::from_raw_mode(entry.header().mode().unwrap_or(0o644) & 0o777)
}

/// A link that lies so many folders deep leads to something in the copy itself.
///
/// It may go up at its beginning only: there the folders are real ones, and how many there are is known. Later it could go up from
/// wherever another link leads to.
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
    // The first of the folders is the copy.
    up < depth && (up > 0 || is_down)
}

/// What a name in a folder is, without following it; none when there is nothing.
pub(super) fn kind(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<rustix::fs::FileType>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(rustix::fs::FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
