//! Folders that others may have made, and what is written there: through no link.
//!
//! A folder is opened once; from there each part of a path is opened by its name, and never a link. A file gets its
//! name by a rename when it is whole, so that neither a link nor another name of the same file is written through.

use std::ffi::{OsStr, OsString};
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::random::letters;

/// Flags to open a folder, and never a link to one.
pub const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What may be there already under the name of something that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Nothing.
    Refused,
    /// A file, which is replaced.
    Replaced,
    /// A file, which is replaced, or a folder, which is merged into.
    Merged,
}

/// A folder to write into, which need not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    named: PathBuf,
    chosen: PathBuf,
}

impl Goal {
    /// A folder that the user named: it may be a link, or be reached through one.
    pub fn named(folder: &Path) -> Self {
        Self::chosen(folder, Path::new(""))
    }

    /// A folder that the user did not name, by its path below one that they did: no part of that path may be a link.
    pub fn chosen(named: &Path, below: &Path) -> Self {
        Self { named: named.to_owned(), chosen: below.to_owned() }
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.named.join(&self.chosen)
    }

    /// Checks that files can be written at these paths below it; changes nothing.
    ///
    /// # Errors
    /// The first thing that is in the way of one of them, by its path.
    pub fn check<'a>(&self, files: impl IntoIterator<Item = &'a Path>, existing: Existing) -> Result<()> {
        match self.open_named() {
            Ok(top) => {
                files.into_iter().try_for_each(|file| look(top.as_fd(), &self.named, &self.chosen.join(file), existing))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Opens it for files at these paths below it, after that check. Makes it where it is missing.
    ///
    /// # Errors
    /// As [`Self::check`]; nothing was changed then.
    pub fn open<'a>(&self, files: impl IntoIterator<Item = &'a Path>, existing: Existing) -> Result<Folder> {
        self.check(files, existing)?;
        if !self.named.as_os_str().is_empty() {
            fs_err::create_dir_all(&self.named)?;
        }
        let top = make(self.open_named()?.as_fd(), &self.named, &self.chosen)?;
        Ok(Folder { top, path: self.path() })
    }

    fn open_named(&self) -> Result<OwnedFd> {
        let path = if self.named.as_os_str().is_empty() { Path::new(".") } else { &self.named };
        rustix::fs::open(path, FOLDER.difference(OFlags::NOFOLLOW), Mode::empty()).map_err(|error| at(path, error))
    }
}

/// A folder that is open for writing.
#[derive(Debug)]
pub struct Folder {
    top: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file at a path below it, which replaces one that is there. Makes the folders on its way.
    ///
    /// # Errors
    /// When a part of the way is a link or no folder, or the file cannot be written. Nothing is left of it then.
    pub fn write(&self, file: &Path, bytes: &[u8]) -> Result<()> {
        let (folder, name) = self.place(file)?;
        let part = OsString::from(format!(".gpucl-{}", letters(12).map_err(Error::other)?));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let shown = self.path.join(file);
        let opened =
            rustix::fs::openat(&folder, &part, flags, Mode::from_raw_mode(0o666)).map_err(|error| at(&shown, error))?;
        let written = std::fs::File::from(opened).write_all(bytes);
        let written = written.and_then(|()| Ok(rustix::fs::renameat(&folder, &part, &folder, &name)?));
        written.map_err(|error| {
            let _ = rustix::fs::unlinkat(&folder, &part, AtFlags::empty());
            Error::new(error.kind(), format!("{}: {error}", shown.display()))
        })
    }

    /// The folder that a path below it is in, made where it is missing, and the name there.
    ///
    /// # Errors
    /// When a part of the way is a link or no folder.
    pub fn place(&self, file: &Path) -> Result<(OwnedFd, OsString)> {
        let above = file.parent().unwrap_or(Path::new(""));
        let name = file.file_name().ok_or_else(|| leads_out(file))?;
        Ok((make(self.top.as_fd(), &self.path, above)?, name.to_owned()))
    }

    /// Removes the file at a path below it.
    ///
    /// # Errors
    /// When a part of the way is a link or no folder, or there is no file.
    pub fn remove(&self, file: &Path) -> Result<()> {
        let (folder, name) = self.place(file)?;
        rustix::fs::unlinkat(&folder, &name, AtFlags::empty()).map_err(|error| at(&self.path.join(file), error))
    }

    /// Moves an entry of another folder of the same file system here, under its own name.
    ///
    /// # Errors
    /// When something is here that `existing` does not allow. It stays where it is then.
    pub fn adopt(&self, from: BorrowedFd<'_>, name: &OsStr, existing: Existing) -> Result<()> {
        let shown = self.path.join(name);
        if existing != Existing::Refused {
            return move_to(from, name, self.top.as_fd(), name, &shown);
        }
        match rustix::fs::renameat_with(from, name, &self.top, name, RenameFlags::NOREPLACE) {
            // Some file systems do not know the flag.
            Err(Errno::INVAL | Errno::NOSYS) if kind(self.top.as_fd(), name)?.is_none() => {
                rustix::fs::renameat(from, name, &self.top, name).map_err(|error| at(&shown, error))
            }
            Err(Errno::INVAL | Errno::NOSYS | Errno::EXIST) => Err(in_the_way(&shown, "already exists")),
            moved => moved.map_err(|error| at(&shown, error)),
        }
    }
}

/// Checks the way to a file, as far as it exists, and what has the file's name.
fn look(top: BorrowedFd<'_>, above: &Path, file: &Path, existing: Existing) -> Result<()> {
    let mut names = parts(file)?;
    let Some(leaf) = names.pop() else { return Err(leads_out(file)) };
    let (mut folder, mut shown) = (None::<OwnedFd>, above.to_owned());
    for name in names {
        let here = folder.as_ref().map_or(top, AsFd::as_fd);
        shown.push(name);
        if kind(here, name)?.is_none() {
            return may_write(here, &shown);
        }
        folder = Some(enter(here, name, &shown)?);
    }
    let here = folder.as_ref().map_or(top, AsFd::as_fd);
    shown.push(leaf);
    match (kind(here, leaf)?, existing) {
        (None, _) | (Some(FileType::RegularFile), Existing::Replaced | Existing::Merged) => may_write(here, &shown),
        (Some(FileType::Directory), Existing::Merged) => may_write(here, &shown),
        (Some(_), Existing::Refused) => Err(in_the_way(&shown, "already exists")),
        (Some(FileType::Symlink), _) => Err(in_the_way(&shown, "is a link")),
        (Some(FileType::Directory), _) => Err(in_the_way(&shown, "is a folder")),
        (Some(_), _) => Err(in_the_way(&shown, "is not a file")),
    }
}

fn may_write(folder: BorrowedFd<'_>, shown: &Path) -> Result<()> {
    let how = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(folder, ".", how, AtFlags::empty()).map_err(|error| at(shown, error))
}

/// Opens the folder at a path, through no link, and makes it where it is missing.
pub fn make(top: BorrowedFd<'_>, above: &Path, below: &Path) -> Result<OwnedFd> {
    let (mut folder, mut shown) = (top.try_clone_to_owned()?, above.to_owned());
    for name in parts(below)? {
        shown.push(name);
        match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(at(&shown, error)),
        }
        folder = enter(folder.as_fd(), name, &shown)?;
    }
    Ok(folder)
}

/// The names of a path that leads downwards only.
fn parts(path: &Path) -> Result<Vec<&OsStr>> {
    let names = path.components().filter(|part| *part != Component::CurDir);
    names.map(|part| if let Component::Normal(name) = part { Ok(name) } else { Err(leads_out(path)) }).collect()
}

fn leads_out(path: &Path) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("`{}` leads to no file below the folder", path.display()))
}

fn in_the_way(shown: &Path, what: &str) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("{} {what}", shown.display()))
}

fn at(path: &Path, error: Errno) -> Error {
    let error = Error::from(error);
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Opens a folder in a folder, and never a link to one.
pub fn step(folder: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(folder, name, FOLDER, Mode::empty())
}

/// Opens a folder in a folder; the error says what is there instead.
fn enter(folder: BorrowedFd<'_>, name: &OsStr, shown: &Path) -> Result<OwnedFd> {
    step(folder, name).map_err(|error| match kind(folder, name) {
        Ok(Some(FileType::Symlink)) => in_the_way(shown, "is a link"),
        Ok(Some(kind)) if kind != FileType::Directory => in_the_way(shown, "is not a folder"),
        _ => at(shown, error),
    })
}

/// Opens a file of a folder to append to it, such as one of a transfer that was cut, and makes it where it is missing.
///
/// # Errors
/// When it is no plain file, or has a second name: then somebody else made it.
pub fn append(folder: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Result<std::fs::File> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(mode))?);
    let found = file.metadata()?;
    if !found.is_file() || found.nlink() != 1 {
        return Err(Error::other(format!("{} is there, and gpucl did not make it", name.display())));
    }
    Ok(file)
}

/// The type of an entry in a folder, not following a link; `None` when it does not exist.
pub fn kind(folder: BorrowedFd<'_>, name: &OsStr) -> Result<Option<FileType>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The names in a folder.
pub fn names(folder: BorrowedFd<'_>) -> Result<Vec<OsString>> {
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

/// Moves an entry of one folder to a name in another, or merges it into a folder there, as `cp -r` does; `shown` is the
/// destination for messages.
///
/// # Errors
/// When a link, or something of another kind, is in the way. Nothing is changed then.
pub fn move_to(from: BorrowedFd<'_>, name: &OsStr, to: BorrowedFd<'_>, as_name: &OsStr, shown: &Path) -> Result<()> {
    check_way(from, name, to, as_name, shown)?;
    merge(from, name, to, as_name)
}

/// Checks that nothing is in the way, before anything is moved.
fn check_way(from: BorrowedFd<'_>, name: &OsStr, to: BorrowedFd<'_>, as_name: &OsStr, shown: &Path) -> Result<()> {
    let in_the_way = |what: &str| Err(Error::other(format!("{} is {what}; nothing was copied", shown.display())));
    let comes = kind(from, name)?;
    match (comes, kind(to, as_name)?) {
        (_, None) => Ok(()),
        (_, Some(FileType::Symlink)) => in_the_way("a link here"),
        (Some(FileType::Directory), Some(FileType::Directory)) => {
            let (from, to) = (step(from, name)?, step(to, as_name)?);
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

fn merge(from: BorrowedFd<'_>, name: &OsStr, to: BorrowedFd<'_>, as_name: &OsStr) -> Result<()> {
    let is_folder = |found| found == Some(FileType::Directory);
    if !is_folder(kind(from, name)?) || !is_folder(kind(to, as_name)?) {
        // A rename replaces a link and never follows it.
        return Ok(rustix::fs::renameat(from, name, to, as_name)?);
    }
    let (from, to) = (step(from, name)?, step(to, as_name)?);
    for name in names(from.as_fd())? {
        merge(from.as_fd(), &name, to.as_fd(), &name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with a link to a folder, a link to a file and one to nowhere, and the folder and file that they lead to.
    fn ground() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs_err::create_dir_all(at("theirs/real")).unwrap();
        fs_err::create_dir(at("home")).unwrap();
        fs_err::write(at("home/rc"), "old").unwrap();
        symlink("../home", at("theirs/folder")).unwrap();
        symlink("../../home/rc", at("theirs/real/rc")).unwrap();
        symlink("../../home/new", at("theirs/real/new")).unwrap();
        fs_err::write(at("theirs/real/mine"), "mine").unwrap();
        root
    }

    fn read(root: &tempfile::TempDir, name: &str) -> String {
        fs_err::read_to_string(root.path().join(name)).unwrap()
    }

    #[test]
    fn a_link_in_the_way_is_named_and_nothing_is_written() {
        let root = ground();
        for (below, file, link) in [
            ("", "folder/rc", "folder is a link"),
            ("", "real/rc", "real/rc is a link"),
            ("", "real/new", "real/new is a link"),
            ("folder", "x", "folder is a link"),
            ("folder/deeper", "x", "folder is a link"),
            ("", "real/mine/x", "real/mine is not a folder"),
            ("real", "../x", "leads to no file"),
        ] {
            let goal = Goal::chosen(&root.path().join("theirs"), Path::new(below));
            let files = [Path::new("fine/new"), Path::new(file)];
            let error = goal.open(files, Existing::Replaced).unwrap_err().to_string();
            assert!(error.contains(link), "{below}, {file}: {error}");
        }
        assert_eq!(fs_err::read_dir(root.path().join("home")).unwrap().count(), 1, "something came through a link");
        assert_eq!(read(&root, "home/rc"), "old");
        assert!(!root.path().join("theirs/fine").exists(), "a check has written");
    }

    /// What comes into the way after the check is not written through either.
    #[test]
    fn a_write_follows_no_link_that_came_later_and_no_second_name_of_a_file() {
        let root = ground();
        let folder = Goal::named(&root.path().join("theirs")).open([], Existing::Replaced).unwrap();
        assert!(folder.write(Path::new("folder/rc"), b"new").unwrap_err().to_string().contains("folder is a link"));
        folder.write(Path::new("real/rc"), b"new").unwrap();
        fs_err::hard_link(root.path().join("home/rc"), root.path().join("theirs/second")).unwrap();
        folder.write(Path::new("second"), b"new").unwrap();
        folder.write(Path::new("a/b/c"), b"deep").unwrap();
        assert_eq!(read(&root, "home/rc"), "old");
        assert_eq!((read(&root, "theirs/real/rc"), read(&root, "theirs/second")), ("new".into(), "new".into()));
        assert_eq!(read(&root, "theirs/a/b/c"), "deep");
        assert!(folder.write(Path::new("a/b"), b"x").is_err());
        let left = names(fs_err::File::open(root.path().join("theirs/a")).unwrap().as_fd()).unwrap();
        assert_eq!(left, ["b"], "a part of a file is left");
    }

    #[test]
    fn a_folder_that_the_user_named_may_be_a_link() {
        let root = ground();
        let goal = Goal::named(&root.path().join("theirs/folder"));
        goal.open([Path::new("x")], Existing::Refused).unwrap().write(Path::new("x"), b"1").unwrap();
        assert_eq!(read(&root, "home/x"), "1");
    }

    #[test]
    fn what_may_be_there_is_what_was_said() {
        let root = ground();
        let goal = Goal::named(&root.path().join("theirs"));
        for (file, existing, is_free) in [
            ("real/mine", Existing::Refused, false),
            ("real/mine", Existing::Replaced, true),
            ("real/mine", Existing::Merged, true),
            ("real", Existing::Refused, false),
            ("real", Existing::Replaced, false),
            ("real", Existing::Merged, true),
            ("folder", Existing::Merged, false),
            ("none/at/all", Existing::Refused, true),
        ] {
            assert_eq!(goal.check([Path::new(file)], existing).is_ok(), is_free, "{file}, {existing:?}");
        }
        let from = tempfile::tempdir_in(root.path()).unwrap();
        fs_err::create_dir(from.path().join("real")).unwrap();
        fs_err::write(from.path().join("real/mine"), "new").unwrap();
        let (opened, folder) = (fs_err::File::open(from.path()).unwrap(), goal.open([], Existing::Merged).unwrap());
        let adopt = |existing| folder.adopt(opened.as_fd(), OsStr::new("real"), existing);
        assert!(adopt(Existing::Refused).unwrap_err().to_string().ends_with("real already exists"));
        assert_eq!(read(&root, "theirs/real/mine"), "mine");
        adopt(Existing::Merged).unwrap();
        assert_eq!(read(&root, "theirs/real/mine"), "new");
    }
}
