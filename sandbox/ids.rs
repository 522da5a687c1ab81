//! Ids in the formats of the real services.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};

/// A generator of ids, unique across stand-ins.
#[derive(Debug)]
pub(super) struct Ids {
    seed: [u8; 16],
    made: u64,
}

impl Ids {
    pub(super) fn new() -> Self {
        let mut seed = [0_u8; 16];
        if getrandom::fill(&mut seed).is_err() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            seed = now.to_be_bytes();
        }
        Self { seed, made: 0 }
    }

    /// A new id of 64 hexadecimal digits.
    pub(super) fn digits(&mut self) -> String {
        self.made += 1;
        hex(&[&self.seed[..], &self.made.to_be_bytes()].concat())
    }

    /// `9ec488998c754f0db4280cb2ebfe71f9`
    pub(super) fn hex(&mut self) -> String {
        self.digits()[..32].to_owned()
    }

    /// `1c899e1f-a506-4bb3-af4c-4f4dad8b3c4a`
    pub(super) fn uuid(&mut self) -> String {
        dashed(&self.digits())
    }
}

/// SHA-256 in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The first 32 digits in the format of a UUID.
pub(super) fn dashed(digits: &str) -> String {
    format!("{}-{}-4{}-a{}-{}", &digits[..8], &digits[8..12], &digits[13..16], &digits[17..20], &digits[20..32])
}
