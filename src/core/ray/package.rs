//! Working folders and modules: packed by gpucl, stored at Ray under the digest of their content.

mod hiding;
mod list;

use std::io::{self, Cursor, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use zip::write::SimpleFileOptions;

use hiding::hides_module;
use list::{Entry, list, nothing_left, unfit};

use super::client::Client;
use super::runtime_env::ModuleSource;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fs::read_within;
use crate::util::{digest, human};

pub use list::{ListedFile, files_of};

/// The maximum size of a package, in bytes.
pub const SIZE_LIMIT: u64 = 100 * 1024 * 1024;
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
    hiding: Vec<String>,
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
                let name = named_for_ray(&whole).map_err(|why| wrong(folder, why))?;
                Self::packed(folder, &format!("{name}/"), excludes, SIZE_LIMIT, &doing(folder))
            }
            ModuleSource::File(path) => {
                let name = named_for_ray(path).map_err(|why| wrong(path, why))?;
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
                Ok(Self { name: name.to_owned(), bytes, files: 0, skipped: Vec::new(), hiding: Vec::new() })
            }
        }
    }

    /// Packs a folder; `begin` is put in front of each name.
    fn packed(folder: &Path, begin: &str, excludes: &[String], limit: u64, doing: &str) -> Result<Self> {
        let root = fs_err::canonicalize(folder).doing(ErrorKind::Usage, || doing.to_owned())?;
        if !root.is_dir() {
            return Err(Error::new(ErrorKind::Usage, doing).because("it is not a folder"));
        }
        let (mut entries, skipped) = list(&root, excludes, Some(begin)).map_err(|error| error.while_doing(doing))?;
        if let Some(why) = nothing_left(&root, &entries, &skipped, excludes) {
            return Err(Error::new(ErrorKind::Usage, doing).because(why).hint(
                "a `.rayignore` in the folder may bring files back: `!*.py` for Python files, and `!*/` for folders",
            ));
        }
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
        let files_of_it = entries.iter().filter(|entry| !entry.is_dir).map(|entry| entry.name.as_str());
        let hiding = files_of_it.filter(|name| hides_module(name)).map(str::to_owned).collect();
        Ok(Self { files, skipped, hiding, ..Self::of_bytes(capped.inner.into_inner()) })
    }

    /// Takes a zip file made by the user as it is.
    ///
    /// # Errors
    /// If it cannot be read or is larger than [`SIZE_LIMIT`].
    pub fn of_zip(path: &Path) -> Result<Self> {
        read_whole(path, &format!("read the working folder's zip file `{}`", path.display())).map(Self::of_bytes)
    }

    fn of_bytes(bytes: Vec<u8>) -> Self {
        Self {
            name: format!("_ray_pkg_{}.zip", digest::short(&bytes)),
            bytes,
            files: 0,
            skipped: Vec::new(),
            hiding: Vec::new(),
        }
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

    /// Its files that hide modules which Ray's workers import at their start: `random.py`, `ray/__init__.py`. Nothing
    /// is known of a zip file or a wheel made by the user.
    pub fn hiding(&self) -> &[String] {
        &self.hiding
    }

    /// Files left out although no pattern excludes them, with the reason.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }
}

/// The name of a module's file or folder; else why Ray cannot have it.
fn named_for_ray(path: &Path) -> std::result::Result<&str, &'static str> {
    let name = path.file_name().unwrap_or_default();
    match (unfit(Path::new(name), Some("")), name.to_str()) {
        (None, Some(name)) if !name.is_empty() => Ok(name),
        (why, _) => Err(why.unwrap_or("its name cannot be imported")),
    }
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
