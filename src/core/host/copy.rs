//! Copies files and folders on this machine, by the rules of a copy to a host: put in place by a rename, merged into an
//! existing folder, and nothing written through a link.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use super::ssh::place::{Place, move_to};
use super::{Copied, LeftOut};
use crate::error::{Doing as _, Error, ErrorKind, Result};

/// Copies a file or folder to a path, or into it when it is a folder or ends with `/`. The result counts the bytes of
/// files.
///
/// # Errors
/// When the source does not exist, is above the destination, or a link or something else is in the way. Nothing is left
/// then.
pub fn copy_here(source: &Path, goal: &Path) -> Result<Copied> {
    let doing = || format!("copy {} to {}", source.display(), goal.display());
    // `.` and `..` have no name of their own; a link is copied as a link.
    let source: PathBuf = match source.file_name() {
        Some(_) => source.to_owned(),
        None => fs_err::canonicalize(source).doing(ErrorKind::NotFound, doing)?,
    };
    let Some(name) = source.file_name() else {
        return Err(Error::new(ErrorKind::Usage, doing()).because("it has no name that the copy could have"));
    };
    let kind = fs_err::symlink_metadata(&source).doing(ErrorKind::NotFound, doing)?;
    let place = Place::of(goal, name);
    if !place.folder.is_dir() {
        let why = format!("{} is not a folder", place.folder.display());
        return Err(Error::new(ErrorKind::NotFound, doing()).because(why));
    }
    if kind.is_dir() {
        let real = |path: &Path| fs_err::canonicalize(path).doing(ErrorKind::Host, doing);
        if real(&place.folder)?.starts_with(real(&source)?) {
            return Err(Error::new(ErrorKind::Usage, doing()).because("a folder cannot be copied into itself"));
        }
    }
    let land = tempfile::Builder::new().prefix(".gpucl-").tempdir_in(&place.folder).doing(ErrorKind::Host, doing)?;
    let mut copied = Copied::default();
    copy(&source, &land.path().join(name), &mut copied).doing(ErrorKind::Host, doing)?;
    if copied.left_out.count > 0 && !land.path().join(name).exists() {
        return Err(Error::new(ErrorKind::Usage, doing()).because("it is not a file, folder or link"));
    }
    let open = |path: &Path| fs_err::File::open(path).doing(ErrorKind::Host, doing);
    let (landing, folder) = (open(land.path())?, open(&place.folder)?);
    move_to(landing.as_fd(), name, folder.as_fd(), &place.name, &place.shown()).doing(ErrorKind::Host, doing)?;
    Ok(copied)
}

/// Copies one entry and all below it to a new path.
fn copy(from: &Path, to: &Path, copied: &mut Copied) -> std::io::Result<()> {
    let kind = fs_err::symlink_metadata(from)?;
    if kind.is_symlink() {
        return fs_err::os::unix::fs::symlink(fs_err::read_link(from)?, to);
    }
    if kind.is_file() {
        copied.bytes += fs_err::copy(from, to)?;
        return Ok(());
    }
    if !kind.is_dir() {
        let LeftOut { named, count } = &mut copied.left_out;
        named.push(format!("{}: it is not a file, folder or link", from.display()));
        *count += 1;
        return Ok(());
    }
    fs_err::create_dir(to)?;
    for entry in fs_err::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()), copied)?;
    }
    // Last, since a folder may be read-only.
    fs_err::set_permissions(to, kind.permissions())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_is_merged_into_one_that_is_there() {
        let here = tempfile::tempdir().unwrap();
        let (from, to) = (here.path().join("from"), here.path().join("to"));
        fs_err::create_dir_all(from.join("set/a")).unwrap();
        fs_err::create_dir_all(to.join("set/a")).unwrap();
        fs_err::write(from.join("set/a/new"), "four").unwrap();
        fs_err::write(to.join("set/a/kept"), "x").unwrap();
        symlink("a/new", from.join("set/link")).unwrap();
        let copied = copy_here(&from.join("set"), &to).unwrap();
        assert_eq!((copied.bytes, copied.left_out.count), (4, 0));
        assert_eq!(fs_err::read_to_string(to.join("set/link")).unwrap(), "four");
        assert!(to.join("set/a/kept").exists());
        assert_eq!(fs_err::read_dir(&to).unwrap().count(), 1, "nothing else is left");
        copy_here(&from.join("set/a/new"), &to.join("renamed")).unwrap();
        assert_eq!(fs_err::read_to_string(to.join("renamed")).unwrap(), "four");
    }

    #[test]
    fn links_in_the_way_and_copies_into_themselves_are_refused() {
        let here = tempfile::tempdir().unwrap();
        let (file, to) = (here.path().join("file"), here.path().join("to"));
        fs_err::write(&file, "new").unwrap();
        fs_err::write(here.path().join("victim"), "old").unwrap();
        fs_err::create_dir(&to).unwrap();
        symlink(here.path().join("victim"), to.join("file")).unwrap();
        assert!(copy_here(&file, &to).unwrap_err().to_string().contains("is a link here"));
        assert_eq!(fs_err::read_to_string(here.path().join("victim")).unwrap(), "old");
        assert!(copy_here(here.path(), &to).unwrap_err().to_string().contains("into itself"));
        assert_eq!(copy_here(&file, &to.join("none/x")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(copy_here(&here.path().join("none"), &to).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
