//! A large file, which is sent by itself and resumed where it was cut.

use std::io::Read;

use sha2::{Digest as _, Sha256};

use super::tree::Below;
use crate::util::digest;

/// The SHA-256 of a file or of its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    /// Parses the digits that `sha256sum` prints.
    pub(super) fn parse(digits: &[u8]) -> Option<Self> {
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 64 && digits.is_ascii())?;
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// The digest of all that is read.
    pub(super) fn of(mut from: impl Read) -> std::io::Result<Self> {
        let mut hash = Sha256::new();
        let mut buffer = vec![0_u8; 128 * 1024];
        loop {
            let read = from.read(&mut buffer)?;
            if read == 0 {
                return Ok(Self(hash.finalize().into()));
            }
            hash.update(&buffer[..read]);
        }
    }
}

/// A file that is sent by itself, from where it was cut.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Its path in the source.
    pub(super) path: Below,
    /// Its path in the destination.
    pub(super) goal: Below,
    /// The name in the stage for what has arrived of it.
    pub(super) part: Vec<u8>,
    /// How much has arrived.
    pub(super) from: u64,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) modified: i64,
}

impl Part {
    /// The name for what has arrived of a file: another one for every other state of the file.
    pub(super) fn name(goal: &[u8], size: u64, modified: i64) -> Vec<u8> {
        let text = [goal, format!("\0{size}\0{modified}").as_bytes()].concat();
        format!("part-{}", digest::short(&text)).into_bytes()
    }
}
