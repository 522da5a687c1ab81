//! The journal: one JSON line per record, on disk before the call returns.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Record;
use super::lock::way_to_write;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::fs::{HISTORY_LIMIT, open_append, read_within};

/// The format version of the journal and the snapshot.
pub(super) const VERSION: u32 = 3;

/// A record with its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    v: u32,
    pub(super) at: jiff::Timestamp,
    #[serde(flatten)]
    pub(super) record: Record,
}

/// Appends one record and syncs it to disk.
pub(super) fn append(path: &Path, record: &Record, at: jiff::Timestamp) -> Result<()> {
    let doing = || format!("write to the journal {}", path.display());
    let line = Line { v: VERSION, at, record: record.clone() };
    let mut text = serde_json::to_string(&line).doing(ErrorKind::Internal, doing)?;
    text.push('\n');
    let mut file = open_append(path).doing(ErrorKind::State, doing)?;
    locked(&mut file, |file| {
        // A line truncated by a crash or a full disk must not swallow this one.
        let length = file.metadata()?.len();
        if length > 0 && !ends_with_newline(path)? {
            text.insert(0, '\n');
        }
        file.write_all(text.as_bytes())?;
        file.sync_data()
    })
    .map_err(|error| {
        Error::new(ErrorKind::State, doing())
            .caused_by(&error)
            .because("gpucl does nothing that it has not written down first")
            .hint(way_to_write(path, &error))
    })
}

/// Reads all complete records. A truncated line was never acted upon, and is skipped.
pub(super) fn read(path: &Path) -> Result<Vec<Line>> {
    let doing = || format!("read the journal {}", path.display());
    let text = match read_within(path, HISTORY_LIMIT) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::new(ErrorKind::State, doing()).caused_by(&error)),
    };
    let mut lines = Vec::new();
    for (number, text) in text.lines().enumerate().filter(|(_, text)| !text.is_empty()) {
        match serde_json::from_str::<Line>(text) {
            Ok(line) => lines.push(line),
            Err(error) => match serde_json::from_str::<serde_json::Value>(text) {
                // A complete line in another format.
                Ok(value) => {
                    let version = value.get("v").and_then(serde_json::Value::as_u64).unwrap_or(0);
                    let error = Error::new(ErrorKind::State, doing()).because(format!("line {}: {error}", number + 1));
                    return Err(if version > u64::from(VERSION) { newer(error, version) } else { error });
                }
                Err(_) => continue,
            },
        }
    }
    Ok(lines)
}

/// Adds to an error that the file was written by a newer gpucl.
pub(super) fn newer(error: Error, version: u64) -> Error {
    error
        .because(format!("it has version {version}, and this gpucl knows version {VERSION}: a newer gpucl wrote it"))
        .hint("use that newer gpucl, or install it over this one (type -a gpucl   # shows all that are installed); nothing was changed")
}

/// Adds to an error that the file was written by an older gpucl, whose format is no longer supported.
pub(super) fn older(error: Error, version: u64, cluster: &str) -> Error {
    error
        .because(format!(
            "it has version {version}, and this gpucl knows version {VERSION}: a gpucl before 0.1 wrote it"
        ))
        .hint(format!("gpucl down -c {cluster}   # finds what that cluster has by its tag, and removes it"))
}

/// Does `work` while no other process appends.
pub(super) fn locked<T>(file: &mut File, work: impl FnOnce(&mut File) -> std::io::Result<T>) -> std::io::Result<T> {
    file.lock()?;
    let result = work(file);
    let _ = file.unlock();
    result
}

fn ends_with_newline(path: &Path) -> std::io::Result<bool> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = fs_err::File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut byte = [0];
    file.read_exact(&mut byte)?;
    Ok(byte[0] == b'\n')
}
