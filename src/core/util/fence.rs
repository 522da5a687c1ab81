//! Which local files a text may name that others wrote, such as a spec or a runtime environment of a cloned repository.
//!
//! Those in its folder, or in one that the user allowed; symlinks are resolved first. If the folder is a home folder, so
//! are `.aws`, `.ssh` and `.config`: what is in a hidden folder is not the text's to name.

use std::path::{Component, Path, PathBuf};

use super::fs::{RECORD_LIMIT, read_within, resolve};
use crate::error::{Error, ErrorKind, Result};

/// Folders of a home where things of many origins lie, in small letters; those of other languages are in `user-dirs.dirs`.
const SHARED: &[&str] = &[
    "desktop",
    "documents",
    "downloads",
    "music",
    "pictures",
    "public",
    "templates",
    "videos",
    "dropbox",
    "google drive",
    "nextcloud",
    "onedrive",
    "owncloud",
];

/// The folders that files may be named in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    folder: PathBuf,
    /// The folder in words: `the spec's folder`.
    words: &'static str,
    /// With all symlinks resolved.
    allowed: Vec<PathBuf>,
    /// The user's home folder, if it may not be taken as a whole.
    home: Option<PathBuf>,
}

/// Why a file may not be named.
#[derive(Debug, thiserror::Error)]
pub enum Outside {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unread(String),
    /// It is not within the fence.
    #[error("`{}` {why}", file.display())]
    Beyond {
        /// Its real path.
        file: PathBuf,
        /// What is wrong with its place.
        why: String,
        /// The folder to allow.
        allow: PathBuf,
    },
}

impl Fence {
    /// A fence around this folder (empty: the working folder) and the folders that the user allowed.
    ///
    /// # Errors
    /// If an allowed one is not a folder: even if nothing is named there, it is a mistake in the command.
    pub fn new(folder: &Path, words: &'static str, allowed: &[PathBuf]) -> Result<Self> {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let allowed = allowed.iter().map(|path| real_folder(path)).collect::<Result<_>>()?;
        Ok(Self { folder: folder.to_owned(), words, allowed, home: None })
    }

    /// The folder that it is around, from which relative paths begin.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Refuses to take all of a folder where things of many origins lie: the home, or its downloads.
    #[must_use]
    pub fn sparing(self, home: &Path) -> Self {
        Self { home: Some(home.to_owned()), ..self }
    }

    /// The real path of the file that the user named and that names others. It may be anywhere, but is not a link that
    /// leads out of the folder.
    ///
    /// # Errors
    /// If it does not exist, or is such a link.
    pub fn of_the_user(&self, path: &Path) -> Result<PathBuf, Outside> {
        let file = real(&self.folder.join(path))?;
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if is_below && !file.starts_with(real(&self.folder)?) && !self.allows(&file) {
            let (why, allow) = (format!("is outside {}, and named by a link in it", self.words), parent(&file));
            return Err(Outside::Beyond { file, why, allow });
        }
        Ok(file)
    }

    /// The real path of a file, with symlinks resolved; a relative one is in the fence's folder.
    ///
    /// # Errors
    /// If it does not exist, or is outside.
    pub fn file(&self, path: &Path) -> Result<PathBuf, Outside> {
        let (file, folder) = (real(&self.folder.join(path))?, real(&self.folder)?);
        if self.allows(&file) {
            return Ok(file);
        }
        let why = match file.strip_prefix(&folder) {
            Err(_) => format!("is outside {}", self.words),
            Ok(below) if is_hidden(below.parent().unwrap_or(Path::new(""))) => "is in a hidden folder".to_owned(),
            Ok(_) => return Ok(file),
        };
        let allow = parent(&file);
        Err(Outside::Beyond { file, why, allow })
    }

    /// The real path of a file or folder that is taken with all that is in it.
    ///
    /// # Errors
    /// As [`Fence::file`]; and if it is a hidden folder, or neither a file nor a folder.
    pub fn file_or_folder(&self, path: &Path) -> Result<PathBuf, Outside> {
        let source = self.file(path)?;
        let kind = fs_err::metadata(&source).map_err(unread)?;
        if !kind.is_dir() && !kind.is_file() {
            return Err(unread("only regular files and folders are sent"));
        }
        let is_own = || real(&self.folder).is_ok_and(|folder| source == folder);
        if kind.is_dir() && source.file_name().is_some_and(is_dotted) && !self.allows(&source) && !is_own() {
            let why = "is a hidden folder".to_owned();
            return Err(Outside::Beyond { file: source.clone(), why, allow: source });
        }
        if self.home.as_ref().is_some_and(|home| is_shared(&source, home)) && !self.allows(&source) {
            let why = "is a folder with things of many origins in it".to_owned();
            return Err(Outside::Beyond { file: source.clone(), why, allow: source });
        }
        Ok(source)
    }

    fn allows(&self, file: &Path) -> bool {
        self.allowed.iter().any(|allowed| file.starts_with(allowed))
    }
}

/// Whether a folder, by its real path, is one where things of many origins lie, or has such a folder in it.
pub fn is_shared(folder: &Path, home: &Path) -> bool {
    let home = real_or_same(home);
    let is_temporary = ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|shared| folder == Path::new(shared));
    // They may be links to another disk, and have any spelling of their names.
    let entries = fs_err::read_dir(&home).into_iter().flatten().flatten();
    let known = entries.filter(|entry| SHARED.contains(&entry.file_name().to_string_lossy().to_lowercase().as_str()));
    let known = known.map(|entry| entry.path()).chain(user_dirs(&home));
    is_temporary || home.starts_with(folder) || known.into_iter().any(|shared| real_or_same(&shared) == folder)
}

fn real_or_same(path: &Path) -> PathBuf {
    resolve(path).ok().flatten().unwrap_or_else(|| path.to_owned())
}

/// The folders of the user's desktop, such as `Téléchargements` (xdg-user-dirs, `user-dirs.dirs`).
fn user_dirs(home: &Path) -> Vec<PathBuf> {
    let bytes = read_within(&home.join(".config/user-dirs.dirs"), RECORD_LIMIT).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let values = text.lines().filter(|line| line.starts_with("XDG_")).filter_map(|line| line.split_once('='));
    let named = values.map(|(_, value)| value.trim().trim_matches('"'));
    named
        .filter_map(|value| match value.strip_prefix("$HOME/") {
            Some(below) => Some(home.join(below.trim_end_matches('/'))),
            None => Some(PathBuf::from(value)).filter(|path| path.is_absolute()),
        })
        .collect()
}

fn parent(file: &Path) -> PathBuf {
    file.parent().unwrap_or(file).to_owned()
}

fn real(path: &Path) -> Result<PathBuf, Outside> {
    match resolve(path) {
        Ok(Some(path)) => Ok(path),
        Ok(None) => Err(unread(format!("{}: there is no such file or folder", path.display()))),
        Err(error) => Err(unread(error)),
    }
}

fn unread(why: impl std::fmt::Display) -> Outside {
    Outside::Unread(why.to_string())
}

fn real_folder(path: &Path) -> Result<PathBuf> {
    let wrong = |cause: &str| {
        Error::new(ErrorKind::Usage, format!("allow files from {}", path.display()))
            .because(cause)
            .hint("--allow-path takes an existing folder")
    };
    match resolve(path) {
        Ok(Some(path)) if path.is_dir() => Ok(path),
        Ok(Some(_)) => Err(wrong("it is not a folder")),
        Ok(None) => Err(wrong("there is no such folder")),
        Err(error) => Err(wrong(&error.to_string())),
    }
}

fn is_hidden(folders: &Path) -> bool {
    folders.components().any(|part| is_dotted(part.as_os_str()))
}

fn is_dotted(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}
