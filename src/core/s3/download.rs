//! Reads objects into files of this machine. A download that was cut goes on where it ended, if the object is the same.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::OpenOptionsExt as _;

use super::{Client, Found};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::digest;

/// How often a download that breaks off goes on.
const RESUMES: u32 = 5;
/// The beginning of the name of an incomplete download, in the folder of its file.
const INCOMPLETE: &str = ".gpucl-part-";

/// One object and its file.
#[derive(Debug, Clone)]
pub struct Download<'a> {
    /// The bucket.
    pub bucket: &'a str,
    /// The key.
    pub key: &'a str,
    /// The file, in a folder that exists.
    pub file: &'a Path,
}

impl Download<'_> {
    /// The file of its incomplete content; another content of the object has another one.
    fn part(&self, found: &Found) -> PathBuf {
        self.file.with_file_name(format!("{}{}", self.begin(), digest::short(found.etag.as_bytes())))
    }

    fn begin(&self) -> String {
        let own = format!("{}/{}\n{}", self.bucket, self.key, self.file.display());
        format!("{INCOMPLETE}{}-", digest::short(own.as_bytes()))
    }

    /// Removes the incomplete content of earlier versions of the object.
    fn forget_others(&self, part: &Path) {
        let (Some(folder), begin) = (self.file.parent(), self.begin()) else { return };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(&begin) && part.file_name() != Some(&name) {
                // One that stays takes space, and the next download tries again.
                let _ = fs_err::remove_file(entry.path());
            }
        }
    }
}

impl Client {
    /// Reads an object into its file, which it replaces by a rename; `moved` gets each number of bytes that came.
    /// Returns the size, and whether it went on where an earlier download had ended.
    ///
    /// # Errors
    /// When the object does not exist, the file cannot be written, or the store refuses or does not answer. What came
    /// stays for the next download.
    pub async fn download(&self, what: &Download<'_>, moved: &(dyn Fn(u64) + Sync)) -> Result<(u64, bool)> {
        let Download { bucket, key, file } = what;
        let doing = || format!("read s3://{bucket}/{key} into {}", file.display());
        let not_found = || Error::new(ErrorKind::NotFound, doing()).because("the object does not exist");
        let found = self.find(bucket, key).await?.ok_or_else(not_found)?;
        let part = what.part(&found);
        what.forget_others(&part);
        let mut open = fs_err::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o666)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&part)
            .doing(ErrorKind::Host, || format!("write {}", part.display()))?;
        let mut have = open.metadata().doing(ErrorKind::Host, doing)?.len();
        if have > found.size {
            open.set_len(0).doing(ErrorKind::Host, doing)?;
            have = 0;
        }
        let (has_resumed, mut resumes) = (have > 0, 0);
        moved(have);
        while have < found.size {
            let broken = match self.read(bucket, key, have, &found.etag).await {
                Ok(mut answer) => loop {
                    match answer.chunk().await {
                        Ok(Some(piece)) => {
                            open.write_all(&piece).doing(ErrorKind::Host, doing)?;
                            have += piece.len() as u64;
                            moved(piece.len() as u64);
                        }
                        Ok(None) => break Error::new(ErrorKind::Host, doing()).because("the store ended it too early"),
                        Err(error) => {
                            break Error::new(ErrorKind::Host, doing()).because(error.without_url().to_string());
                        }
                    }
                },
                Err(error) => return Err(error),
            };
            if have < found.size {
                resumes += 1;
                if resumes > RESUMES {
                    return Err(broken.hint("run it again: it goes on where it ended"));
                }
            }
        }
        if have != found.size {
            return Err(Error::new(ErrorKind::Host, doing()).because("more came than the object has"));
        }
        if let Some(modified) = found.modified {
            // Only `sync` compares it; a file system without times still has the content.
            let _ = open.file().set_modified(modified.into());
        }
        fs_err::rename(&part, file).doing(ErrorKind::Host, doing)?;
        Ok((found.size, has_resumed))
    }
}
