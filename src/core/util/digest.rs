//! Short digests for detecting changes.

use sha2::{Digest as _, Sha256};

/// The first 16 hexadecimal digits of the SHA-256 of these bytes.
pub fn short(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes)[..8])
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of a value serialized as JSON, as 64 hexadecimal digits: where somebody may gain by finding two of one digest.
pub fn whole_of_json(value: &impl serde::Serialize) -> String {
    whole(&serde_json::to_vec(value).unwrap_or_default())
}

/// The SHA-256 of these bytes, as 64 hexadecimal digits.
pub fn whole(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The digest of a value serialized as JSON.
pub fn of_json(value: &impl serde::Serialize) -> String {
    short(&serde_json::to_vec(value).unwrap_or_default())
}

/// The SHA-256 of a file's content, as 64 hexadecimal digits.
pub fn of_file(path: &std::path::Path) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    std::io::copy(&mut fs_err::File::open(path)?, &mut Hashes(&mut hash))?;
    Ok(hex(&hash.finalize()))
}

/// A writer into a hash.
struct Hashes<'a>(&'a mut Sha256);

impl std::io::Write for Hashes<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
