//! What is in a folder: read on this machine, or from what a host lists, which is not trusted.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use super::exclude::Excludes;
use crate::host::ssh::unpack::{DEPTH, ENTRIES};

/// A path below the top folder: names as the system has them, joined by `/`.
pub(crate) type Below = Vec<u8>;

/// The folder in the destination for what has not arrived whole; never part of a tree.
pub(crate) const STAGE: &str = ".gpucl-sync";

/// The folder of the data folder with the secrets of running jobs; never part of a tree.
const SECRETS: &str = ".gpucl-secrets";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Folder,
    File { size: u64, modified: i64 },
    Link { target: Vec<u8> },
    Other,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: EntryKind,
    pub(crate) mode: u32,
}

impl Entry {
    pub(crate) fn is_folder(&self) -> bool {
        self.kind == EntryKind::Folder
    }

    /// The size of a file; of anything else nothing.
    pub(crate) fn size(&self) -> u64 {
        if let EntryKind::File { size, .. } = self.kind { size } else { 0 }
    }

    fn of(metadata: &std::fs::Metadata, path: &Path) -> std::io::Result<Self> {
        let kind = if metadata.is_dir() {
            EntryKind::Folder
        } else if metadata.is_symlink() {
            EntryKind::Link { target: fs_err::read_link(path)?.into_os_string().into_vec() }
        } else if metadata.is_file() {
            EntryKind::File { size: metadata.len(), modified: metadata.mtime() }
        } else {
            EntryKind::Other
        };
        Ok(Self { kind, mode: metadata.permissions().mode() & 0o7777 })
    }
}

/// A folder with everything below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    /// The top itself; `None` when it does not exist.
    pub(crate) top: Option<Entry>,
    /// Everything below it that is not excluded: a folder comes before its contents.
    pub(crate) entries: BTreeMap<Below, Entry>,
    /// What is excluded: neither sent nor deleted.
    pub(crate) excluded: Vec<Below>,
    /// Files that have arrived in part, by name, with their size.
    pub(crate) parts: BTreeMap<Vec<u8>, u64>,
}

/// How much of a folder is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Only what it is.
    Top,
    /// One name in it, and what has arrived in part.
    One(Vec<u8>),
    /// Everything.
    All,
}

/// The folder of a path, empty for the top, and the name in it.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// The folders that a path is in, from its own to the highest, without the top.
pub(crate) fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(split(path).0), |folder| Some(split(folder).0)).take_while(|folder| !folder.is_empty())
}

/// A path as the system takes it.
pub(crate) fn os(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

impl Tree {
    /// Adds an entry, unless it is excluded or of the stage.
    fn add(&mut self, path: Below, entry: Entry, excludes: &Excludes) {
        if path.split(|byte| *byte == b'/').any(|name| name == STAGE.as_bytes()) {
            let part = path.strip_prefix(STAGE.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
            if let (Some(part), EntryKind::File { size, .. }) = (part, &entry.kind)
                && part.starts_with(b"part-")
            {
                self.parts.insert(part.to_vec(), *size);
            }
        } else if path.split(|byte| *byte == b'/').next() == Some(SECRETS.as_bytes()) {
            // Neither sent nor deleted.
            self.excluded.push(path);
        } else if excludes.matches(&path, entry.is_folder()) {
            self.excluded.push(path);
        } else {
            self.entries.insert(path, entry);
        }
    }

    /// Lists a folder of this machine; a link in its own name is followed.
    pub(crate) fn read(top: &Path, scope: &Scope, excludes: &Excludes) -> std::io::Result<Self> {
        let mut tree = Self::default();
        let metadata = match fs_err::metadata(top) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(tree),
            Err(error) => return Err(error),
        };
        let entry = Entry::of(&metadata, top)?;
        let is_folder = entry.is_folder();
        tree.top = Some(entry);
        if !is_folder {
            return Ok(tree);
        }
        match scope {
            Scope::Top => {}
            Scope::All => tree.read_folder(top, b"", excludes)?,
            Scope::One(name) => {
                for (name, is_stage) in [(name.as_slice(), false), (STAGE.as_bytes(), true)] {
                    let path = top.join(os(name));
                    match fs_err::symlink_metadata(&path) {
                        Ok(found) if is_stage && found.is_dir() => tree.read_folder(&path, name, excludes)?,
                        Ok(found) => tree.add(name.to_vec(), Entry::of(&found, &path)?, excludes),
                        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(tree)
    }

    fn read_folder(&mut self, folder: &Path, below: &[u8], excludes: &Excludes) -> std::io::Result<()> {
        let mut left = vec![(folder.to_owned(), below.to_vec())];
        while let Some((folder, below)) = left.pop() {
            for found in fs_err::read_dir(&folder)? {
                let found = found?;
                let mut path = below.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(found.file_name().as_bytes());
                let metadata = match found.metadata() {
                    Ok(metadata) => metadata,
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                };
                let entry = Entry::of(&metadata, &found.path())?;
                let enters = entry.is_folder() && !excludes.matches(&path, true);
                if enters {
                    left.push((found.path(), path.clone()));
                }
                self.add(path, entry, excludes);
            }
        }
        Ok(())
    }

    /// Parses what `shell/list.sh` prints. A host may print anything.
    pub(crate) fn parse(listing: &[u8], excludes: &Excludes) -> Result<Self, String> {
        let mut tree = Self::default();
        let mut records = listing.split(|byte| *byte == 0);
        let mut folders = std::collections::BTreeSet::new();
        while let Some(record) = records.next() {
            if record.is_empty() {
                break;
            }
            let target = records.next().ok_or("the list is cut")?;
            let bad = || format!("the list has `{}`", String::from_utf8_lossy(&record[..record.len().min(200)]));
            let mut fields = record.splitn(5, |byte| *byte == b' ');
            let mut field = || fields.next().ok_or_else(bad);
            let (kind, mode, size, time, path) = (field()?, field()?, field()?, field()?, field()?);
            let text = |field: &[u8]| std::str::from_utf8(field).map(str::to_owned).map_err(|_| bad());
            let mode = u32::from_str_radix(&text(mode)?, 8).map_err(|_| bad())? & 0o7777;
            let size = text(size)?.parse().map_err(|_| bad())?;
            let time = text(time)?;
            let modified = time.split('.').next().unwrap_or_default().parse().map_err(|_| bad())?;
            let kind = match kind {
                b"d" => EntryKind::Folder,
                b"f" => EntryKind::File { size, modified },
                b"l" => EntryKind::Link { target: target.to_vec() },
                _ => EntryKind::Other,
            };
            let entry = Entry { kind, mode };
            let path = path.strip_prefix(b"./").unwrap_or(path);
            if path.is_empty() || path == b"." {
                if tree.top.replace(entry).is_some() {
                    return Err("the list has its top twice".to_owned());
                }
                continue;
            }
            if tree.entries.len() as u64 >= ENTRIES {
                return Err(format!("the list has more than {ENTRIES} entries"));
            }
            let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
            if names.iter().any(|name| matches!(*name, b"" | b"." | b"..")) || names.len() > DEPTH {
                return Err(bad());
            }
            let (folder, _) = split(path);
            if !folder.is_empty() && !folders.contains(folder) && !path.starts_with(STAGE.as_bytes()) {
                return Err(bad());
            }
            if entry.is_folder() {
                folders.insert(path.to_vec());
            }
            tree.add(path.to_vec(), entry, excludes);
        }
        if tree.top.is_none() {
            return Err("the list has no top".to_owned());
        }
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_a_host_is_parsed_and_not_believed() {
        let excludes = Excludes::none();
        let good =
            b"d 755 4096 1700000000.5 \0\0d 755 0 1.0 a b\0\0f 644 7 1700000001.99 a b/x\ny\0\0l 777 1 2.0 l\0a b\0\
            d 700 0 1.0 .gpucl-sync\0\0f 600 5 1.0 .gpucl-sync/part-1\0\0s 600 0 1.0 socket\0\0";
        let tree = Tree::parse(good, &excludes).unwrap();
        assert_eq!(tree.top.unwrap().kind, EntryKind::Folder);
        assert_eq!(tree.entries[&b"a b/x\ny".to_vec()].kind, EntryKind::File { size: 7, modified: 1_700_000_001 });
        assert_eq!(tree.entries[&b"l".to_vec()].kind, EntryKind::Link { target: b"a b".to_vec() });
        assert_eq!(tree.entries[&b"socket".to_vec()].kind, EntryKind::Other);
        assert_eq!(tree.parts, BTreeMap::from([(b"part-1".to_vec(), 5)]));
        assert_eq!(tree.entries.len(), 4);
        for path in ["../x", "/etc/passwd", "a/../../x", "none/x", "a//b", "a/"] {
            let list = format!("d 755 0 1.0 \0\0d 755 0 1.0 a\0\0f 644 1 1.0 {path}\0\0");
            assert!(Tree::parse(list.as_bytes(), &excludes).is_err(), "{path}");
        }
        for list in ["", "f", "f 644 1 1.0 x\0\0", "d 755 0 1.0 \0\0d 755 0 1.0 \0\0", "d 755 0 now \0\0"] {
            assert!(Tree::parse(list.as_bytes(), &excludes).is_err(), "{list}");
        }
    }
}
