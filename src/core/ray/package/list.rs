//! The files of a folder that are packed or sent: what patterns leave, and what cannot be sent by its name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{DirEntry, WalkBuilder};

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fs::{RECORD_LIMIT, read_within, resolve};

/// Always excluded, as by Ray's own tools: large and useless to a job.
const LEFT_OUT: &[&str] = &[".git", ".venv", "venv", "__pycache__"];

/// A file or folder that goes into the package.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) is_dir: bool,
    pub(super) executable: bool,
    pub(super) size: u64,
}

impl Entry {
    pub(super) fn new(name: String, path: PathBuf, data: &std::fs::Metadata) -> Self {
        let (is_dir, executable) = (data.is_dir(), data.permissions().mode() & 0o111 != 0);
        Self { name, path, is_dir, executable, size: if is_dir { 0 } else { data.len() } }
    }
}

/// A file of a folder, as it would be packed.
#[derive(Debug, Clone)]
pub struct ListedFile {
    /// Its path from the folder.
    pub name: String,
    /// Its own path.
    pub path: PathBuf,
    /// Whether it can be executed.
    pub executable: bool,
}

/// The files of a folder that [`super::Package::of_folder`] would pack, and what is left out although no pattern excludes
/// it, with the reason. Names that only Ray's unpacking drops are kept: these files are not unpacked by Ray.
///
/// # Errors
/// If the folder cannot be read.
pub fn files_of(folder: &Path) -> Result<(Vec<ListedFile>, Vec<String>)> {
    let (entries, skipped) = list(folder, &[], None)?;
    let listed = |entry: Entry| ListedFile { name: entry.name, path: entry.path, executable: entry.executable };
    Ok((entries.into_iter().filter(|entry| !entry.is_dir).map(listed).collect(), skipped))
}

/// Why a file or folder cannot be sent by its name, which is its path from the folder; below `begin` for what Ray unpacks.
///
/// Ray skips such names without a word (ray 2.60.0, `unzip_package` in `_private/runtime_env/packaging.py`): a backslash
/// anywhere, or what Windows takes for a drive at the beginning of the whole path. All others it keeps, control characters
/// included.
pub(super) fn unfit(name: &Path, begin: Option<&str>) -> Option<&'static str> {
    let Some(text) = name.to_str() else { return Some("its name is not UTF-8") };
    let begin = begin?;
    if text.contains('\\') {
        return Some("Ray does not unpack names with a backslash");
    }
    let is_drive = begin.chars().chain(text.chars()).nth(1) == Some(':');
    is_drive.then_some("Ray takes its name for a drive of Windows, and does not unpack it")
}

/// Lists the entries to pack, sorted by name, and those left out although no pattern excludes them. What Ray unpacks, it
/// unpacks below `begin`.
pub(super) fn list(root: &Path, excludes: &[String], begin: Option<&str>) -> Result<(Vec<Entry>, Vec<String>)> {
    let doing = "list its files";
    let excluded = excluder(root, excludes)?;
    let left_out = Arc::new(Mutex::new(Vec::new()));
    let (noted, top, begin) = (Arc::clone(&left_out), root.to_owned(), begin.map(str::to_owned));
    readable_patterns(root, root)?;
    let unreadable = Arc::new(Mutex::new(None));
    let first_unreadable = Arc::clone(&unreadable);
    let walk = WalkBuilder::new(root)
        .hidden(false)
        .ignore(false)
        .parents(false)
        .git_global(false)
        .git_exclude(false)
        .git_ignore(true)
        .require_git(false)
        .add_custom_ignore_filename(RAYIGNORE)
        .follow_links(true)
        .filter_entry(move |entry| {
            if excluded.matched(entry.path(), entry.file_type().is_some_and(|kind| kind.is_dir())).is_ignore() {
                return false;
            }
            let note = |why: &str| {
                if let Ok(mut noted) = noted.lock() {
                    noted.push(format!("{}: {why}", relative(&top, entry.path())));
                }
            };
            if let Some(why) = unfit(below(&top, entry.path()), begin.as_deref()) {
                note(why);
                return false;
            }
            let inside = !entry.path_is_symlink() || leads_inside(&top, entry);
            if !inside {
                note("a symlink that points outside the folder");
            }
            // Before the folder is entered, and its patterns are read.
            if inside && let Err(error) = readable_patterns(entry.path(), &top) {
                if let Ok(mut first) = first_unreadable.lock() {
                    first.get_or_insert(error);
                }
                return false;
            }
            inside
        })
        .build();
    let (mut entries, mut skipped) = (Vec::new(), Vec::new());
    for found in walk {
        let entry = match found {
            Ok(entry) => entry,
            // A broken symlink, or one to a folder above itself, is not part of a folder's content.
            Err(error) => match broken_link(&error) {
                Some(path) => {
                    skipped.push(format!("{}: a broken or circular symlink", relative(root, &path)));
                    continue;
                }
                None => return Err(Error::new(ErrorKind::Usage, doing).caused_by(&error)),
            },
        };
        if entry.depth() == 0 {
            continue;
        }
        if entries.len() + skipped.len() >= MOST_ENTRIES {
            return Err(Error::new(ErrorKind::Usage, doing)
                .because(format!("it has more than {MOST_ENTRIES} files and folders, those behind links included"))
                .hint("leave some out by `.rayignore`, or `excludes` of a runtime environment"));
        }
        let name = relative(root, entry.path());
        let data = entry.metadata().doing(ErrorKind::Usage, || doing.to_owned())?;
        if data.is_dir() || data.is_file() {
            entries.push(Entry::new(name, entry.into_path(), &data));
        } else {
            skipped.push(format!("{name}: neither a file nor a folder"));
        }
    }
    if let Ok(mut first) = unreadable.lock()
        && let Some(error) = first.take()
    {
        return Err(error);
    }
    if let Ok(mut left_out) = left_out.lock() {
        skipped.append(&mut left_out);
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    skipped.sort();
    Ok((entries, skipped))
}

/// Why a folder with files has none left for its package: its patterns leave them all out.
pub(super) fn nothing_left(root: &Path, left: &[Entry], skipped: &[String], excludes: &[String]) -> Option<String> {
    let is_pattern_file = |name: &str| PATTERNS.contains(&name);
    let stays = |entry: &Entry| !entry.is_dir && !is_pattern_file(entry.name.rsplit('/').next().unwrap_or_default());
    if !skipped.is_empty() || left.iter().any(stays) {
        return None;
    }
    let found = fs_err::read_dir(root).ok()?.flatten().map(|entry| entry.file_name());
    let names: Vec<String> = found.map(|name| name.to_string_lossy().into_owned()).collect();
    let mut others = names.iter().map(String::as_str).filter(|name| !is_pattern_file(name) && !LEFT_OUT.contains(name));
    others.next()?;
    let mut by: Vec<&str> = PATTERNS.iter().copied().filter(|name| names.iter().any(|found| found == name)).collect();
    if !excludes.is_empty() {
        by.push("`excludes`");
    }
    match by.as_slice() {
        [] if left.iter().any(|entry| !entry.is_dir) => {
            Some("the ignore files in it leave out all of its files".to_owned())
        }
        // Folders without a file.
        [] => None,
        by => Some(format!("nothing of it is left to send: {} leaves out all of its files", by.join(" or "))),
    }
}

/// The most entries of a package: links to folders could otherwise multiply without end.
const MOST_ENTRIES: usize = 200_000;
/// Files of patterns, which the walk reads whole.
const PATTERNS: &[&str] = &[".gitignore", RAYIGNORE];
const RAYIGNORE: &str = ".rayignore";

/// Refuses a folder whose patterns are in no regular file of a sensible size, or behind a link that leads out of `top`: a
/// pipe would never end, nor would some files of the system.
fn readable_patterns(folder: &Path, top: &Path) -> Result<()> {
    for name in PATTERNS {
        let file = folder.join(name);
        let refuse = |why: &str| {
            let cause = format!("{}: {why}", file.display());
            Err(Error::new(ErrorKind::Usage, "list its files").because(cause))
        };
        match resolve(&file) {
            Ok(None) => {}
            Ok(Some(real)) if real.is_dir() => {}
            Ok(Some(real)) if !real.is_file() => return refuse("only a regular file is read"),
            Ok(Some(real)) if !real.starts_with(top) => return refuse("it is a link that leads out of the folder"),
            Ok(Some(real)) => {
                read_within(&real, RECORD_LIMIT).map(drop).doing(ErrorKind::Usage, || "list its files".to_owned())?
            }
            Err(error) => return refuse(&error.to_string()),
        }
    }
    Ok(())
}

fn excluder(root: &Path, excludes: &[String]) -> Result<Gitignore> {
    let mut builder = GitignoreBuilder::new(root);
    for pattern in LEFT_OUT.iter().copied().chain(excludes.iter().map(String::as_str)) {
        builder.add_line(None, pattern).doing(ErrorKind::Usage, || format!("parse the exclude pattern `{pattern}`"))?;
    }
    builder.build().doing(ErrorKind::Usage, || "parse the exclude patterns".to_owned())
}

fn leads_inside(root: &Path, entry: &DirEntry) -> bool {
    // Broken symlinks are reported when the walk meets them.
    resolve(entry.path()).is_ok_and(|target| target.is_none_or(|target| target.starts_with(root)))
}

fn broken_link(error: &ignore::Error) -> Option<PathBuf> {
    fn within(error: &ignore::Error, at: Option<&Path>) -> Option<PathBuf> {
        match error {
            ignore::Error::WithDepth { err, .. } => within(err, at),
            ignore::Error::WithPath { path, err } => within(err, Some(path)),
            ignore::Error::Loop { child, .. } => Some(child.clone()),
            ignore::Error::Io(_) => at.filter(|path| path.is_symlink() && !path.exists()).map(Path::to_owned),
            _ => None,
        }
    }
    within(error, None)
}

fn below<'a>(root: &Path, path: &'a Path) -> &'a Path {
    path.strip_prefix(root).unwrap_or(path)
}

/// The path from the folder; bytes that are not UTF-8 are shown as `\xe9`.
fn relative(root: &Path, path: &Path) -> String {
    shown(below(root, path).as_os_str())
}

fn shown(name: &OsStr) -> String {
    let mut shown = String::new();
    for piece in name.as_bytes().utf8_chunks() {
        shown.push_str(piece.valid());
        piece.invalid().iter().for_each(|byte| shown.push_str(&format!("\\x{byte:02x}")));
    }
    shown
}
