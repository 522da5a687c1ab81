//! The lock of a cluster: one gpucl at a time works on it, and the lock's file says which.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Paths;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_within};
use crate::util::process::{boot_id, host_name, user_name};

/// The holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockInfo {
    /// The command: `up`.
    pub verb: String,
    /// The name of the user.
    pub who: String,
    /// The process id.
    pub pid: u32,
    /// The machine's name: several may share a home.
    pub host: String,
    /// The boot id of that machine.
    pub boot: String,
    /// When the lock was taken.
    pub since: jiff::Timestamp,
}

/// A cluster's lock, released on drop.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// The last holder that has not released the lock; this may be a process that was killed.
    pub fn holder(paths: &Paths, cluster: &ClusterName) -> Option<LockInfo> {
        let path = paths.state.join("locks").join(cluster.as_str());
        serde_json::from_slice(&read_within(&path, RECORD_LIMIT).ok()?).ok()
    }

    /// Takes the lock of a cluster; the error names its holder.
    pub fn take(paths: &Paths, cluster: &ClusterName, verb: &str) -> Result<Self> {
        let folder = paths.state.join("locks");
        let path = folder.join(cluster.as_str());
        let doing = || format!("lock the cluster {cluster}");
        // The holder removes the file when it is done, and the folder when it is empty, so that the path may no longer
        // name the file that was locked.
        for _ in 0..100 {
            create_private_dir(&folder).map_err(|error| unwritable(doing(), &folder, &error))?;
            let opened =
                std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
            let mut file = match opened {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                opened => opened.map_err(|error| unwritable(doing(), &path, &error))?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(held(cluster, &mut file)),
                Err(TryLockError::Error(error)) => {
                    return Err(Error::new(ErrorKind::State, doing()).caused_by(&error).hint(format!(
                        "the file system of {} may not support locks; set XDG_STATE_HOME to a folder on a local disk",
                        folder.display()
                    )));
                }
            }
            if !is_still(&file, &path) {
                continue;
            }
            let info = LockInfo {
                verb: verb.to_owned(),
                who: user_name(),
                pid: std::process::id(),
                host: host_name(),
                boot: boot_id(),
                since: jiff::Timestamp::now(),
            };
            let text = serde_json::to_string(&info).doing(ErrorKind::Internal, doing)?;
            // From here on, dropping the lock removes the file.
            let mut lock = Self { path, file };
            let written = lock.file.set_len(0).and_then(|()| lock.file.write_all(text.as_bytes()));
            return written.map_err(|error| unwritable(doing(), &lock.path, &error)).map(|()| lock);
        }
        Err(Error::new(ErrorKind::Locked, doing()).because("other commands keep taking and releasing it"))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still locked: a process that opened the file meanwhile notices that the path no longer names it, and retries.
        let _ = fs_err::remove_file(&self.path);
        if let Some(folder) = self.path.parent() {
            let _ = fs_err::remove_dir(folder);
        }
    }
}

fn is_still(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs_err::metadata(path)) {
        (Ok(a), Ok(b)) => a.ino() == b.ino() && a.dev() == b.dev(),
        _ => false,
    }
}

fn held(cluster: &ClusterName, file: &mut File) -> Error {
    let mut text = String::new();
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
    let error = Error::new(ErrorKind::Locked, format!("lock the cluster {cluster}"));
    match serde_json::from_str::<LockInfo>(&text) {
        Ok(info) => error
            .because(format!(
                "`gpucl {}` of {} works on it: process {} on {}, since {}",
                info.verb,
                info.who,
                info.pid,
                info.host,
                info.since.strftime("%Y-%m-%d %H:%M:%S UTC")
            ))
            .hint("wait for it to end, or press Ctrl-C where it runs; then run this again"),
        Err(_) => error.because("another gpucl works on it").hint("wait for it to end, then run this again"),
    }
}

/// The error for a state folder that cannot be written.
pub(super) fn unwritable(doing: String, path: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::State, doing)
        .because(format!("{} cannot be written: {error}", path.display()))
        .hint(way_to_write(path, error))
}

/// A hint for a file or folder of the state that cannot be written.
pub(crate) fn way_to_write(path: &Path, error: &std::io::Error) -> String {
    let full = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
    let mend = if full { "make room on its disk" } else { "make it writable" };
    let inspect = if full { "df -h" } else { "ls -ld" };
    // The command in the hint must work, so it names the nearest path that exists.
    let there = path.ancestors().find(|above| if full { above.is_dir() } else { above.exists() }).unwrap_or(path);
    format!("{mend} ({inspect} '{}'), or set XDG_STATE_HOME to a folder that can be written", there.display())
}
