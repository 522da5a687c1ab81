//! Atomic writes, and bounded reads of regular files only.

use std::io::{Error, ErrorKind, Read as _, Result, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::human;

/// The maximum size of a file written by a user or with a single record, in bytes.
pub const RECORD_LIMIT: u64 = 1 << 20;
/// The maximum size of a file that grows, such as a journal, a snapshot or a certificate bundle, in bytes.
pub const HISTORY_LIMIT: u64 = 64 << 20;

/// The path with all links followed; `None` if nothing is there.
///
/// The only way to ask where a path leads: whoever takes any failure for "as it is written" can be led astray, since the
/// system opens paths that it cannot spell out (a name of more than 4096 bytes, by links).
///
/// # Errors
/// If the path cannot be followed for another reason.
pub fn resolve(path: &Path) -> Result<Option<PathBuf>> {
    match fs_err::canonicalize(path) {
        Ok(path) => Ok(Some(path)),
        // A link of `/proc` to what was deleted: its text leads nowhere, and the system opens it all the same.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            match std::fs::metadata(path) {
                Ok(_) => Err(Error::other(format!("`{}` cannot be followed, and is there", path.display()))),
                Err(_) => Ok(None),
            }
        }
        Err(error) => Err(error),
    }
}

/// Opens a regular file for reading. It never blocks on a pipe or reads a device.
///
/// # Errors
/// Each names the file; of kind `InvalidInput` if it is not a regular file.
pub fn open_regular(path: &Path) -> Result<std::fs::File> {
    let with_path = |error: Error| Error::new(error.kind(), format!("failed to open `{}`: {error}", path.display()));
    let refuse = |what: &str| Error::new(ErrorKind::InvalidInput, format!("`{}` is {what}", path.display()));
    let check = |kind: std::fs::FileType| match kind {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(refuse("a folder")),
        _ => Err(refuse("a pipe, a socket or a device; only regular files are read")),
    };
    // Before opening, since opening some devices has effects; and after, since the path may have changed in between.
    check(std::fs::metadata(path).map_err(with_path)?.file_type())?;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(with_path)?;
    check(file.metadata().map_err(with_path)?.file_type())?;
    Ok(file)
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// Each names the file; of kind `FileTooLarge` if it is larger, of kind `InvalidInput` if it is not a regular file.
pub fn read_within(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| Error::new(error.kind(), format!("failed to read `{}`: {error}", path.display())))?;
    if bytes.len() as u64 <= limit {
        return Ok(bytes);
    }
    let text = format!("`{}` is larger than {}, the limit for such a file", path.display(), human::bytes(limit));
    Err(Error::new(ErrorKind::FileTooLarge, text))
}

/// Reads a regular text file of at most `limit` bytes.
///
/// # Errors
/// As [`read_within`]; of kind `InvalidData` if it is not UTF-8.
pub fn read_text_within(path: &Path, limit: u64) -> Result<String> {
    String::from_utf8(read_within(path, limit)?)
        .map_err(|_| Error::new(ErrorKind::InvalidData, format!("`{}` is not UTF-8 text", path.display())))
}

/// Reads a regular text file of at most `limit` bytes that may begin with a byte order mark, and be UTF-16 then, as editors
/// and shells of other systems write it and pip reads it (`auto_decode` in pip 26).
///
/// # Errors
/// As [`read_text_within`].
pub fn read_marked_text_within(path: &Path, limit: u64) -> Result<String> {
    let bytes = read_within(path, limit)?;
    let units = |of: fn([u8; 2]) -> u16| {
        let units: Vec<u16> =
            bytes[2..].chunks(2).map(|pair| of([pair[0], pair.get(1).copied().unwrap_or(0)])).collect();
        String::from_utf16(&units).ok()
    };
    let text = match *bytes {
        [0xff, 0xfe, ..] => units(u16::from_le_bytes),
        [0xfe, 0xff, ..] => units(u16::from_be_bytes),
        _ => std::str::from_utf8(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes)).ok().map(str::to_owned),
    };
    let why = || format!("`{}` is not text in UTF-8: save it as UTF-8", path.display());
    text.ok_or_else(|| Error::new(ErrorKind::InvalidData, why()))
}

/// Like [`read_text_within`], for a file of this user only: whoever owns it decides what is read.
pub fn read_own_text_within(path: &Path, limit: u64) -> Result<String> {
    use std::os::unix::fs::MetadataExt as _;
    let owner = open_regular(path)?.metadata()?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        let why = format!("`{}` belongs to another user, with the number {owner}", path.display());
        return Err(Error::new(ErrorKind::PermissionDenied, why));
    }
    read_text_within(path, limit)
}

/// Reads the last `limit` bytes of a regular file; invalid UTF-8 is replaced.
pub fn read_tail(path: &Path, limit: u64) -> Result<String> {
    let mut file = open_regular(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes a file through a temporary one in the same folder: fsync, rename, fsync of the folder.
///
/// The file has `mode` from the first byte on.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    Replacement::begin(path, mode)?.commit(bytes)
}

/// A file that will be replaced: its successor lies beside it, so that what is written later has its place.
pub struct Replacement {
    file: tempfile::NamedTempFile,
    path: PathBuf,
}

impl Replacement {
    /// Creates the empty successor with this mode. Without a `commit` it is removed again.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub fn begin(path: &Path, mode: u32) -> Result<Self> {
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        let file = tempfile::Builder::new()
            .prefix(".gpucl-")
            .permissions(std::fs::Permissions::from_mode(mode))
            .tempfile_in(folder)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Writes the successor and puts it in place, on disk when this returns.
    ///
    /// # Errors
    /// If it cannot be written, such as on a full disk; the file is then as it was.
    pub fn commit(mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes)?;
        self.file.as_file().sync_all()?;
        self.file.persist(&self.path).map_err(|error| error.error)?;
        sync_folder(self.path.parent().unwrap_or_else(|| Path::new(".")))
    }
}

/// Syncs a folder's entries to disk.
pub fn sync_folder(folder: &Path) -> Result<()> {
    fs_err::File::open(folder)?.sync_all()
}

/// Creates a folder and its parents with mode 0700; succeeds if it exists.
pub fn create_private_dir(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| Error::new(error.kind(), format!("failed to create the folder `{}`: {error}", path.display())))
}

/// Opens a file for appending; a new one gets mode 0600.
pub fn open_append(path: &Path) -> Result<std::fs::File> {
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| Error::new(error.kind(), format!("failed to open `{}`: {error}", path.display())))
}

/// Removes a file, if it exists.
pub fn remove_file(path: &Path) -> Result<()> {
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a folder with its content; returns whether it existed.
pub fn remove_tree(path: &Path) -> Result<bool> {
    match fs_err::remove_dir_all(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_with_a_byte_order_mark_is_read_as_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("requirements.txt");
        let read = |bytes: &[u8]| {
            fs_err::write(&file, bytes).unwrap();
            read_marked_text_within(&file, RECORD_LIMIT)
        };
        let wide = |mark: u16, of: fn(u16) -> [u8; 2]| -> Vec<u8> {
            std::iter::once(mark).chain("six==1.16\r\n# é".encode_utf16()).flat_map(of).collect()
        };
        let text = "six==1.16\r\n# é";
        assert_eq!(read(text.as_bytes()).unwrap(), text);
        assert_eq!(read(format!("\u{feff}{text}").as_bytes()).unwrap(), text);
        assert_eq!(read(&wide(0xfeff, u16::to_le_bytes)).unwrap(), text);
        assert_eq!(read(&wide(0xfeff, u16::to_be_bytes)).unwrap(), text);
        assert_eq!(read(b"").unwrap(), "");
        for odd in [&b"caf\xe9"[..], b"\xff\xfe\x00\xd8", b"\xff"] {
            assert!(read(odd).unwrap_err().to_string().contains("save it as UTF-8"), "{odd:?}");
        }
    }

    #[test]
    fn a_file_is_read_only_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs_err::write(&path, "12345").unwrap();
        assert_eq!(read_text_within(&path, 5).unwrap(), "12345");
        let error = read_within(&path, 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), format!("`{}` is larger than 4 B, the limit for such a file", path.display()));
        assert_eq!((read_tail(&path, 2).unwrap(), read_tail(&path, 9).unwrap()), ("45".to_owned(), "12345".to_owned()));
        fs_err::write(&path, b"\xff").unwrap();
        assert_eq!(read_text_within(&path, 5).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(read_within(&folder.path().join("none"), 5).unwrap_err().kind(), ErrorKind::NotFound);
    }

    /// Reading any of these would block or never end.
    #[test]
    fn a_pipe_a_socket_and_a_device_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, socket) = (folder.path().join("pipe"), folder.path().join("socket"));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for path in [pipe.as_path(), &socket, &link, Path::new("/dev/zero"), folder.path()] {
            for error in [read_within(path, 10).unwrap_err(), read_tail(path, 10).unwrap_err()] {
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
                assert!(error.to_string().contains(&path.display().to_string()), "{error}");
            }
        }
    }
}
