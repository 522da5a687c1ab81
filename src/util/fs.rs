//! Files that are either whole or not there.

use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Writes a file through a temporary one in the same folder: fsync, rename, fsync of the folder.
///
/// `mode` is in force from the first byte.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".gpucl-")
        .permissions(std::fs::Permissions::from_mode(mode))
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    sync_folder(folder)
}

/// Brings a folder's entries to the disk.
pub fn sync_folder(folder: &Path) -> std::io::Result<()> {
    fs_err::File::open(folder)?.sync_all()
}

/// Makes a folder, and those above it, that only its user may read.
pub fn create_private_dir(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| {
        std::io::Error::new(error.kind(), format!("failed to create the folder `{}`: {error}", path.display()))
    })
}

/// Opens a file for appending, made with mode 0600 when it is new.
pub fn open_append(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| std::io::Error::new(error.kind(), format!("failed to open `{}`: {error}", path.display())))
}

/// Removes a folder and all in it; says whether it was there.
pub fn remove_tree(path: &Path) -> std::io::Result<bool> {
    match fs_err::remove_dir_all(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
