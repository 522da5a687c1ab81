//! Writes files of this machine as objects: small ones in one call, large ones in parts.

use std::io::Read as _;
use std::path::Path;

use super::Client;
use crate::error::{Doing as _, Error, ErrorKind, Result};

/// The size of a part in bytes; a file of at most this size is written in one call. It is also what is held in memory.
const PART: u64 = 16 * 1024 * 1024;
/// The most parts that an object may have.
const MOST_PARTS: u64 = 10_000;

impl Client {
    /// Writes a file as an object; `moved` gets each number of bytes that the store has.
    ///
    /// # Errors
    /// When the file cannot be read or changes while it is read, or the store refuses or does not answer.
    pub async fn upload(&self, file: &Path, bucket: &str, key: &str, moved: &(dyn Fn(u64) + Sync)) -> Result<u64> {
        let doing = || format!("write {} to s3://{bucket}/{key}", file.display());
        let mut open = fs_err::File::open(file).doing(ErrorKind::NotFound, doing)?;
        let size = open.metadata().doing(ErrorKind::Host, doing)?.len();
        let part = PART.max(size.div_ceil(MOST_PARTS));
        let mut bytes = Vec::new();
        let mut next = |bytes: &mut Vec<u8>| -> Result<u64> {
            bytes.clear();
            (&mut open).take(part).read_to_end(bytes).doing(ErrorKind::Host, doing)?;
            Ok(bytes.len() as u64)
        };
        if size <= PART {
            let read = next(&mut bytes)?;
            if read != size {
                return Err(changed(doing()));
            }
            self.write(bucket, key, &bytes).await?;
            moved(size);
            return Ok(size);
        }
        let id = self.begin(bucket, key).await?;
        let (mut sent, mut parts) = (0, Vec::new());
        while sent < size {
            let read = next(&mut bytes)?;
            if read == 0 || sent + read > size {
                return Err(changed(doing()));
            }
            let number = u16::try_from(parts.len() + 1).doing(ErrorKind::Internal, doing)?;
            parts.push(self.part(bucket, key, &id, number, &bytes).await?);
            sent += read;
            moved(read);
        }
        self.complete(bucket, key, &id, &parts).await?;
        Ok(size)
    }
}

fn changed(doing: String) -> Error {
    Error::new(ErrorKind::Host, doing).because("the file changed while it was read")
}
