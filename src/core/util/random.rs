//! Random text for owners, tokens and ids, and jitter.

use crate::error::{Doing, ErrorKind, Result};

/// Generates `length` characters of `[a-z0-9]`, each equally likely.
pub fn letters(length: usize) -> Result<String> {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut text = String::with_capacity(length);
    while text.len() < length {
        let mut bytes = [0_u8; 64];
        getrandom::fill(&mut bytes).doing(ErrorKind::Internal, || "read random bytes from the system".to_owned())?;
        // 252 is the largest multiple of 36 in a byte: bytes above it would make some letters more likely.
        for byte in bytes.iter().filter(|byte| **byte < 252) {
            if text.len() < length {
                text.push(char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]));
            }
        }
    }
    Ok(text)
}

/// A random duration between zero and this one, so that many retries do not come at the same moment.
pub fn up_to(most: std::time::Duration) -> std::time::Duration {
    let mut byte = [0_u8; 1];
    // Without random bytes there is no jitter, which is harmless.
    let _ = getrandom::fill(&mut byte);
    most * u32::from(byte[0]) / 255
}
