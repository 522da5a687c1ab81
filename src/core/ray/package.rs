//! Working folders and modules: packed by gpucl, stored at Ray under the digest of their content.

use std::io::{self, Cursor, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::{DirEntry, WalkBuilder};
use reqwest::Method;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use zip::write::SimpleFileOptions;

use super::client::Client;
use super::runtime_env::ModuleSource;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fs::{RECORD_LIMIT, read_within, resolve};
use crate::util::{digest, human};

/// The maximum size of a package, in bytes.
pub const SIZE_LIMIT: u64 = 100 * 1024 * 1024;
/// Always excluded, as by Ray's own tools: large and useless to a job.
const LEFT_OUT: &[&str] = &[".git", ".venv", "venv", "__pycache__"];
const UPLOAD_LIMIT: Duration = Duration::from_secs(600);
const CHUNK: usize = 256 * 1024;

/// A callback for upload progress: bytes sent, and bytes in total.
pub type OnProgress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// A packed working folder or module.
#[derive(Debug, Clone)]
pub struct Package {
    name: String,
    bytes: Vec<u8>,
    files: usize,
    skipped: Vec<String>,
}

/// The result of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadOutcome {
    /// Ray has it now.
    Uploaded,
    /// Ray had it before.
    Present,
}

impl Package {
    /// Packs a folder without what `.gitignore`, `.rayignore` and `excludes` match. Equal folders give equal packages.
    ///
    /// Blocks on disk reads.
    ///
    /// # Errors
    /// If the folder cannot be read, or its package would be larger than [`SIZE_LIMIT`].
    pub fn of_folder(folder: &Path, excludes: &[String]) -> Result<Self> {
        Self::of_folder_within(folder, excludes, SIZE_LIMIT)
    }

    /// As [`Package::of_folder`], with another size limit, in bytes.
    ///
    /// # Errors
    /// As [`Package::of_folder`].
    pub fn of_folder_within(folder: &Path, excludes: &[String], limit: u64) -> Result<Self> {
        let doing = format!("pack the working folder `{}`", folder.display());
        Self::packed(folder, "", excludes, limit, &doing)
    }

    /// Packs a module of `py_modules`: a folder under its own name, so that it can be imported by it; a file; or a
    /// wheel, which is uploaded unchanged and keeps its name, as Ray requires.
    ///
    /// Blocks on disk reads.
    ///
    /// # Errors
    /// If it cannot be read, is larger than [`SIZE_LIMIT`], or a folder or wheel has a name that cannot be used.
    pub fn of_module(source: &ModuleSource) -> Result<Self> {
        let doing = |path: &Path| format!("pack the module `{}`", path.display());
        let wrong = |path: &Path, cause: &str| Error::new(ErrorKind::Usage, doing(path)).because(cause);
        match source {
            ModuleSource::Folder(folder, excludes) => {
                // The name as written: a symlink may have another name than its target.
                let named = std::path::absolute(folder).ok().filter(|path| path.file_name().is_some());
                let whole = match named {
                    Some(path) => path,
                    None => fs_err::canonicalize(folder).doing(ErrorKind::Usage, || doing(folder))?,
                };
                let Some(name) = whole.file_name().and_then(|name| name.to_str()) else {
                    return Err(wrong(folder, "its name cannot be imported"));
                };
                Self::packed(folder, &format!("{name}/"), excludes, SIZE_LIMIT, &doing(folder))
            }
            ModuleSource::File(path) => {
                let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                    return Err(wrong(path, "its name cannot be imported"));
                };
                let data = fs_err::metadata(path).doing(ErrorKind::Usage, || doing(path))?;
                let entry = Entry::new(name.to_owned(), path.clone(), &data);
                Self::zipped(&[entry], Vec::new(), SIZE_LIMIT, &doing(path))
            }
            ModuleSource::Wheel(path) => {
                let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._+!-".contains(letter);
                let name = path.file_name().and_then(|name| name.to_str());
                let Some(name) = name.filter(|name| name.chars().all(allowed)) else {
                    return Err(wrong(path, "this is not a valid name of a wheel"));
                };
                let bytes = read_whole(path, &doing(path))?;
                Ok(Self { name: name.to_owned(), bytes, files: 0, skipped: Vec::new() })
            }
        }
    }

    /// Packs a folder; `begin` is put in front of each name.
    fn packed(folder: &Path, begin: &str, excludes: &[String], limit: u64, doing: &str) -> Result<Self> {
        let root = fs_err::canonicalize(folder).doing(ErrorKind::Usage, || doing.to_owned())?;
        if !root.is_dir() {
            return Err(Error::new(ErrorKind::Usage, doing).because("it is not a folder"));
        }
        let (mut entries, skipped) = list(&root, excludes).map_err(|error| error.while_doing(doing))?;
        for entry in &mut entries {
            entry.name.insert_str(0, begin);
        }
        Self::zipped(&entries, skipped, limit, doing)
    }

    fn zipped(entries: &[Entry], skipped: Vec<String>, limit: u64, doing: &str) -> Result<Self> {
        let mut zip = zip::ZipWriter::new(Capped { inner: Cursor::new(Vec::new()), limit, full: false });
        let mut files = 0;
        for entry in entries {
            let name = entry.name.as_str();
            // A fixed time, so that the package does not depend on when files were checked out.
            let options = SimpleFileOptions::default().last_modified_time(zip::DateTime::default());
            let wrote = if entry.is_dir {
                zip.add_directory(name, options.unix_permissions(0o755))
            } else {
                files += 1;
                let mode = if entry.executable { 0o755 } else { 0o644 };
                let mut file = fs_err::File::open(&entry.path).doing(ErrorKind::Usage, || doing.to_owned())?;
                zip.start_file(name, options.unix_permissions(mode).large_file(entry.size >= u64::from(u32::MAX)))
                    .and_then(|()| io::copy(&mut file, &mut zip).map(drop).map_err(Into::into))
            };
            if let Err(error) = wrote {
                return Err(pack_error(&error, entries, limit, doing));
            }
        }
        let capped = zip.finish().map_err(|error| pack_error(&error, entries, limit, doing))?;
        Ok(Self { files, skipped, ..Self::of_bytes(capped.inner.into_inner()) })
    }

    /// Takes a zip file made by the user as it is.
    ///
    /// # Errors
    /// If it cannot be read or is larger than [`SIZE_LIMIT`].
    pub fn of_zip(path: &Path) -> Result<Self> {
        read_whole(path, &format!("read the working folder's zip file `{}`", path.display())).map(Self::of_bytes)
    }

    fn of_bytes(bytes: Vec<u8>) -> Self {
        Self { name: format!("_ray_pkg_{}.zip", digest::short(&bytes)), bytes, files: 0, skipped: Vec::new() }
    }

    /// Its name at Ray: `_ray_pkg_<digest>.zip`, or that of a wheel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URI for a runtime environment.
    pub fn uri(&self) -> String {
        format!("gcs://{}", self.name)
    }

    /// The content of the zip file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of files in it; 0 for a zip file or a wheel made by the user.
    pub fn files(&self) -> usize {
        self.files
    }

    /// Files left out although no pattern excludes them, with the reason.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }
}

/// A file or folder that goes into the package.
struct Entry {
    name: String,
    path: PathBuf,
    is_dir: bool,
    executable: bool,
    size: u64,
}

impl Entry {
    fn new(name: String, path: PathBuf, data: &std::fs::Metadata) -> Self {
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

/// The files of a folder that [`Package::of_folder`] would pack, and what it would leave out although no pattern
/// excludes it, with the reason.
///
/// # Errors
/// If the folder cannot be read.
pub fn files_of(folder: &Path) -> Result<(Vec<ListedFile>, Vec<String>)> {
    let (entries, skipped) = list(folder, &[])?;
    let listed = |entry: Entry| ListedFile { name: entry.name, path: entry.path, executable: entry.executable };
    Ok((entries.into_iter().filter(|entry| !entry.is_dir).map(listed).collect(), skipped))
}

/// Reads a file that is uploaded as it is.
fn read_whole(path: &Path, doing: &str) -> Result<Vec<u8>> {
    let size = fs_err::metadata(path).doing(ErrorKind::Usage, || doing.to_owned())?.len();
    if size > SIZE_LIMIT {
        return Err(Error::new(ErrorKind::Usage, doing).because(format!(
            "it has {}; Ray accepts at most {}",
            human::bytes(size),
            human::bytes(SIZE_LIMIT)
        )));
    }
    read_within(path, SIZE_LIMIT).doing(ErrorKind::Usage, || doing.to_owned())
}

/// Lists the entries to pack, sorted by name, and those left out although no pattern excludes them.
fn list(root: &Path, excludes: &[String]) -> Result<(Vec<Entry>, Vec<String>)> {
    let doing = "list its files";
    let excluded = excluder(root, excludes)?;
    let outside = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (noted, top) = (Arc::clone(&outside), root.to_owned());
    readable_patterns(root, root)?;
    let unreadable = Arc::new(std::sync::Mutex::new(None));
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
            let inside = !entry.path_is_symlink() || leads_inside(&top, entry);
            if !inside && let Ok(mut noted) = noted.lock() {
                noted.push(format!("{}: a symlink that points outside the folder", relative(&top, entry.path())));
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
    if let Ok(mut outside) = outside.lock() {
        skipped.append(&mut outside);
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    skipped.sort();
    Ok((entries, skipped))
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

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

fn pack_error(error: &zip::result::ZipError, entries: &[Entry], limit: u64, doing: &str) -> Error {
    let full = matches!(error, zip::result::ZipError::Io(cause) if cause.kind() == io::ErrorKind::FileTooLarge);
    if !full {
        return Error::new(ErrorKind::Usage, doing).caused_by(error);
    }
    let mut largest: Vec<&Entry> = entries.iter().filter(|entry| !entry.is_dir).collect();
    largest.sort_by(|a, b| (b.size, &a.name).cmp(&(a.size, &b.name)));
    let list: Vec<String> =
        largest.iter().take(5).map(|entry| format!("{:>10}  {}", human::bytes(entry.size), entry.name)).collect();
    Error::new(ErrorKind::Usage, doing)
        .because(format!("its package is larger than {}; the largest files:\n{}", human::bytes(limit), list.join("\n")))
        .hint("list what the job does not need in .gitignore or .rayignore; put data in a bucket or on the hosts")
}

/// A buffer with a size limit, so that packing a huge folder fails early.
struct Capped {
    inner: Cursor<Vec<u8>>,
    limit: u64,
    full: bool,
}

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.full {
            // The zip writer finishes its archive on drop, and complains on stderr if it cannot.
            return Ok(bytes.len());
        }
        if self.inner.position() + bytes.len() as u64 > self.limit {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for Capped {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

impl Client {
    /// Whether Ray has a package. The request also keeps it there for the next minutes.
    ///
    /// # Errors
    /// If Ray does not answer or refuses the token.
    pub async fn package_exists(&self, name: &str) -> Result<bool> {
        let doing = format!("ask Ray for package {name}");
        match self.read_answer(&format!("/api/packages/gcs/{name}"), &doing).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Uploads a package unless Ray has it.
    ///
    /// # Errors
    /// If Ray does not accept it.
    pub async fn upload(&self, package: &Package, progress: Option<OnProgress>) -> Result<UploadOutcome> {
        if self.package_exists(package.name()).await? {
            return Ok(UploadOutcome::Present);
        }
        let doing = format!("upload package {}", package.name());
        let total = package.bytes().len() as u64;
        let chunks: Vec<Vec<u8>> = package.bytes().chunks(CHUNK).map(<[u8]>::to_vec).collect();
        let mut sent = 0;
        let stream = futures_util::stream::iter(chunks.into_iter().map(move |chunk| {
            sent += chunk.len() as u64;
            if let Some(progress) = &progress {
                progress(sent, total);
            }
            Ok::<_, io::Error>(chunk)
        }));
        let request = self
            .request(Method::PUT, &format!("/api/packages/gcs/{}", package.name()), &doing)?
            .header(CONTENT_LENGTH, total)
            .header(CONTENT_TYPE, "application/zip")
            .body(reqwest::Body::wrap_stream(stream))
            .timeout(UPLOAD_LIMIT);
        self.send(request, &doing).await?;
        Ok(UploadOutcome::Uploaded)
    }
}
