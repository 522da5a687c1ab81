//! A folder of this machine. What arrives is put in place by renames, through folders that are opened one by one and
//! never through a link.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use tokio::sync::mpsc::{Receiver, Sender};

use super::batch::{Batch, ByFolder};
use super::exclude::Excludes;
use super::folders::{Folders, at, remove};
use super::part::{Digest, Part};
use super::pieces::{Outgoing, PIECE, Whole};
use super::tree::{Below, Entry, EntryKind, STAGE, Scope, Tree, os, split};
use crate::error::{Doing as _, Error, ErrorKind, Result, Status};
use crate::host::LeftOut;
use crate::host::ssh::transfer::Arriving;
use crate::host::ssh::unpack::{Refusal, UnpackLimits, unpack_all};
use crate::util::folder::{FOLDER, append, kind, step};

/// After this time, what a killed sync left in the stage is removed.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// A path on this machine.
#[derive(Debug, Clone)]
pub struct Here {
    /// The path.
    pub path: PathBuf,
}

impl Here {
    /// The path for messages.
    pub(super) fn shown(&self) -> String {
        self.path.display().to_string()
    }

    /// The folder that this path is in.
    pub(super) fn folder(&self) -> Self {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self { path: folder.to_owned() }
    }

    /// The name that the path ends with; empty if it has none of its own.
    pub(super) fn name(&self) -> Below {
        self.path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default()
    }

    fn wrong(&self, error: &dyn std::error::Error) -> Error {
        Error::new(ErrorKind::Host, format!("write in {}", self.shown())).because(error)
    }

    /// What the path leads to.
    pub(super) fn list(&self, scope: &Scope, excludes: &Excludes) -> Result<Tree> {
        let doing = || format!("list {}", self.shown());
        Tree::read(&self.path, scope, excludes).doing(ErrorKind::Host, doing)
    }

    /// Opens the folder, made where it is missing.
    fn open(&self) -> Result<OwnedFd> {
        fs_err::create_dir_all(&self.path).map_err(|error| self.wrong(&error))?;
        let flags = FOLDER.difference(OFlags::NOFOLLOW);
        rustix::fs::open(&self.path, flags, Mode::empty()).map_err(|error| self.wrong(&error))
    }

    /// The stage in the folder, made where it is missing: of this user, and of nobody else.
    fn stage(&self, top: BorrowedFd<'_>) -> Result<OwnedFd> {
        match rustix::fs::mkdirat(top, STAGE, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(self.wrong(&error)),
        }
        let stage = step(top, OsStr::new(STAGE)).map_err(|error| self.wrong(&error))?;
        let found = rustix::fs::fstat(&stage).map_err(|error| self.wrong(&error))?;
        if found.st_uid != rustix::process::geteuid().as_raw() || found.st_mode & 0o077 != 0 {
            return Err(Error::new(ErrorKind::Host, format!("write in {}", self.shown()))
                .because(format!("{STAGE} is there already, and is open to others")));
        }
        self.clear_stale();
        Ok(stage)
    }

    /// Removes what a sync left that was killed.
    fn clear_stale(&self) {
        let Ok(entries) = fs_err::read_dir(self.path.join(STAGE)) else { return };
        for entry in entries.flatten() {
            let changed = entry.metadata().and_then(|found| found.modified()).unwrap_or_else(|_| SystemTime::now());
            if changed.elapsed().is_ok_and(|age| age > STALE) {
                let path = entry.path();
                let _ = if path.is_dir() { fs_err::remove_dir_all(path) } else { fs_err::remove_file(path) };
            }
        }
    }

    /// Removes the stage, if nothing is in it.
    fn leave(top: BorrowedFd<'_>) {
        let _ = rustix::fs::unlinkat(top, STAGE, AtFlags::REMOVEDIR);
    }

    /// The digests of files.
    pub(super) fn digests(&self, paths: &[Below]) -> Result<BTreeMap<Below, Digest>> {
        let doing = || format!("compare files of {}", self.shown());
        let mut digests = BTreeMap::new();
        for path in paths {
            let file = self.file(path).doing(ErrorKind::Host, doing)?;
            digests.insert(path.clone(), Digest::of(file).doing(ErrorKind::Host, doing)?);
        }
        Ok(digests)
    }

    /// The digest of the beginning of a file.
    pub(super) fn digest_of_start(&self, path: &[u8], length: u64) -> Result<Option<Digest>> {
        let doing = || format!("compare a file of {}", self.shown());
        let file = self.file(path).doing(ErrorKind::Host, doing)?;
        Digest::of(file.take(length)).map(Some).doing(ErrorKind::Host, doing)
    }

    /// Opens a file to read it, if it is one and no link.
    fn file(&self, path: &[u8]) -> std::io::Result<std::fs::File> {
        let path = self.path.join(os(path));
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let named = |error: std::io::Error| std::io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| named(error.into()))?;
        let file = std::fs::File::from(file);
        if !file.metadata()?.is_file() {
            return Err(named(std::io::Error::other("it is no file any more")));
        }
        Ok(file)
    }

    /// Sends an archive of these entries.
    pub(super) fn give(&self, entries: &[(Below, Entry)], into: Sender<Vec<u8>>) -> Result<()> {
        let mut archive = tar::Builder::new(Outgoing::new(into));
        let packed = entries.iter().try_for_each(|(path, entry)| self.pack(&mut archive, path, entry));
        let packed = packed.and_then(|()| archive.into_inner()).and_then(|mut stream| stream.flush());
        match packed {
            // Whoever stopped reading says why.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            packed => packed.doing(ErrorKind::Host, || format!("copy from {}", self.shown())),
        }
    }

    fn pack(&self, archive: &mut tar::Builder<Outgoing>, path: &[u8], entry: &Entry) -> std::io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(entry.mode & 0o777);
        match &entry.kind {
            EntryKind::Folder => {
                header.set_entry_type(tar::EntryType::Directory);
                // What it holds has to be written; its own permissions are set at the end.
                header.set_mode(entry.mode & 0o777 | 0o700);
                header.set_size(0);
                archive.append_data(&mut header, os(&[path, b"/"].concat()), std::io::empty())
            }
            EntryKind::Link { target } => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                archive.append_link(&mut header, os(path), os(target))
            }
            EntryKind::File { .. } => {
                let file = self.file(path)?;
                let found = file.metadata()?;
                header.set_size(found.len());
                header.set_mtime(u64::try_from(found.mtime()).unwrap_or_default());
                let whole = Whole { file, left: found.len() };
                archive.append_data(&mut header, os(path), whole)
            }
            EntryKind::Other => Ok(()),
        }
    }

    /// Sends a file from `part.from` on.
    pub(super) fn give_part(&self, part: &Part, into: &Sender<Vec<u8>>) -> Result<()> {
        let doing = || format!("copy from {}", self.shown());
        let mut file = self.file(&part.path).doing(ErrorKind::Host, doing)?;
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(part.from)).doing(ErrorKind::Host, doing)?;
        let mut left = part.size.saturating_sub(part.from);
        while left > 0 {
            let mut piece = vec![0; usize::try_from(left).unwrap_or(PIECE).min(PIECE)];
            let read = file.read(&mut piece).doing(ErrorKind::Host, doing)?;
            if read == 0 {
                return Err(Error::new(ErrorKind::Host, doing())
                    .status(Status::Temporary)
                    .because(format!("{} became shorter while it was read", os(&part.path).display()))
                    .hint("run it again"));
            }
            piece.truncate(read);
            left -= read as u64;
            if into.blocking_send(piece).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Receives an archive of these entries, and puts them in their place. Returns what has not arrived.
    pub(super) fn take(
        &self,
        batch: &Batch,
        entries: &[(Below, Entry)],
        kept_mode: u32,
        from: Receiver<Vec<u8>>,
    ) -> Result<(Vec<Below>, LeftOut)> {
        let doing = || format!("copy to {}", self.shown());
        let top = self.open()?;
        let stage = self.stage(top.as_fd())?;
        let land = tempfile::Builder::new().prefix("land-").tempdir_in(self.path.join(STAGE));
        let land = land.doing(ErrorKind::Host, doing)?;
        let name = land.path().file_name().unwrap_or_default();
        let landing = step(stage.as_fd(), name).doing(ErrorKind::Host, doing)?;
        let room = UnpackLimits::of(&landing).doing(ErrorKind::Host, doing)?;
        let left_out = unpack_all(Arriving::new(from), landing.as_fd(), room).map_err(|refusal| match refusal {
            Refusal::Unwanted(why) => Error::new(ErrorKind::Host, doing()).because(why),
            Refusal::Broken(why) => Error::new(ErrorKind::Host, doing()).status(Status::Temporary).because(why),
        })?;
        let missing = self.place(batch, entries, kept_mode, landing.as_fd(), top.as_fd());
        let missing = missing.doing(ErrorKind::Host, doing)?;
        drop(land);
        Self::leave(top.as_fd());
        Ok((missing, left_out))
    }

    /// Moves what has been unpacked to its folders; returns what is missing.
    fn place(
        &self,
        batch: &Batch,
        entries: &[(Below, Entry)],
        kept_mode: u32,
        landing: BorrowedFd<'_>,
        top: BorrowedFd<'_>,
    ) -> std::io::Result<Vec<Below>> {
        let mut missing = Vec::new();
        let mut folders = Folders::new(landing);
        for (path, entry) in entries {
            let (folder, name) = split(path);
            let name = OsStr::from_bytes(name);
            let arrived = match folders.open(folder) {
                Ok(folder) => kind(folder, name)?.map(|kind| (folder, kind)),
                Err(Errno::NOENT) => None,
                Err(error) => return Err(error.into()),
            };
            let expected = match entry.kind {
                EntryKind::Folder => FileType::Directory,
                EntryKind::Link { .. } => FileType::Symlink,
                _ => FileType::RegularFile,
            };
            match arrived {
                None => missing.push(path.clone()),
                Some((_, kind)) if kind != expected => {
                    let what = format!("{} changed its kind while it was sent", os(path).display());
                    return Err(std::io::Error::other(what));
                }
                Some((_, FileType::Symlink)) => {}
                Some((folder, kind)) => {
                    let more = if kind == FileType::Directory { 0o700 } else { 0 };
                    let mode = Mode::from_raw_mode(entry.mode & kept_mode | more);
                    rustix::fs::chmodat(folder, name, mode, AtFlags::empty())?;
                }
            }
        }
        let mut goals = Folders::new(top);
        for (folder, names) in &batch.moves {
            for name in names {
                let moved = match folders.open(folder) {
                    Ok(from) => {
                        let name = OsStr::from_bytes(name);
                        let to = goals.open(folder).map_err(|error| at(folder, error))?;
                        rustix::fs::renameat(from, name, to, name)
                    }
                    Err(error) => Err(error),
                };
                match moved {
                    // It is among what is missing.
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(at(&[folder.as_slice(), name].join(&b'/'), error)),
                }
            }
        }
        Ok(missing)
    }

    /// Receives a file from `part.from` on, and puts it in its place when it is whole.
    pub(super) fn take_part(&self, part: &Part, mut from: Receiver<Vec<u8>>) -> Result<()> {
        let doing = || format!("copy to {}", self.shown());
        let top = self.open()?;
        let stage = self.stage(top.as_fd())?;
        let name = OsStr::from_bytes(&part.part);
        let mut file = append(stage.as_fd(), name, 0o600).doing(ErrorKind::Host, doing)?;
        if part.from == 0 {
            file.set_len(0).doing(ErrorKind::Host, doing)?;
        }
        let mut has = file.metadata().doing(ErrorKind::Host, doing)?.len();
        let room = UnpackLimits::of(&stage).doing(ErrorKind::Host, doing)?;
        if part.size - has.min(part.size) > room.bytes {
            return Err(Error::new(ErrorKind::Host, doing())
                .because(format!("there is no room for {}", crate::util::human::bytes(part.size - has))));
        }
        while let Some(piece) = from.blocking_recv() {
            has += piece.len() as u64;
            if has > part.size {
                return Err(Error::new(ErrorKind::Host, doing()).because("more arrived than the file has"));
            }
            file.write_all(&piece).doing(ErrorKind::Host, doing)?;
        }
        if has != part.size {
            return Err(Error::new(ErrorKind::Host, doing())
                .status(Status::Temporary)
                .because(format!("{} arrived only in part", os(&part.goal).display()))
                .hint("run it again: it goes on where it was cut"));
        }
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec: part.modified, tv_nsec: 0 },
        };
        // A time that this file system cannot store is no reason to lose the file.
        let _ = rustix::fs::futimens(&file, &times);
        rustix::fs::fchmod(&file, Mode::from_raw_mode(part.mode)).doing(ErrorKind::Host, doing)?;
        let (folder, leaf) = split(&part.goal);
        let mut goals = Folders::new(top.as_fd());
        let goal = goals.open(folder).map_err(|error| at(folder, error)).doing(ErrorKind::Host, doing)?;
        rustix::fs::renameat(&stage, name, goal, OsStr::from_bytes(leaf)).doing(ErrorKind::Host, doing)?;
        Self::leave(top.as_fd());
        Ok(())
    }

    /// Makes the folder, and removes names in it.
    pub(super) fn remove(&self, groups: &ByFolder) -> Result<()> {
        let top = self.open()?;
        let mut folders = Folders::new(top.as_fd());
        for (folder, names) in groups {
            for name in names {
                let removed = folders.open(folder).and_then(|folder| remove(folder, OsStr::from_bytes(name)));
                removed
                    .map_err(|error| at(&[folder.as_slice(), name].join(&b'/'), error))
                    .doing(ErrorKind::Host, || format!("delete in {}", self.shown()))?;
            }
        }
        Ok(())
    }

    /// Sets permissions in the folder.
    pub(super) fn set_modes(&self, modes: &BTreeMap<u32, ByFolder>) -> Result<()> {
        let top = self.open()?;
        let mut folders = Folders::new(top.as_fd());
        for (mode, groups) in modes {
            for (folder, names) in groups {
                for name in names {
                    let set = folders.open(folder).and_then(|folder| {
                        let name = OsStr::from_bytes(name);
                        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
                        let opened = rustix::fs::openat(folder, name, flags, Mode::empty())?;
                        rustix::fs::fchmod(opened, Mode::from_raw_mode(*mode))
                    });
                    set.map_err(|error| at(&[folder.as_slice(), name].join(&b'/'), error))
                        .doing(ErrorKind::Host, || format!("set permissions in {}", self.shown()))?;
                }
            }
        }
        Ok(())
    }
}
