//! Short digests for detecting changes.

use sha2::{Digest as _, Sha256};

/// The first 16 hexadecimal digits of the SHA-256 of these bytes.
pub fn short(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The digest of a value serialized as JSON.
pub fn of_json(value: &impl serde::Serialize) -> String {
    short(&serde_json::to_vec(value).unwrap_or_default())
}
