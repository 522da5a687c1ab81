//! Ids as the services make them.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};

/// Makes ids; no two stand-ins make the same.
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

    /// 64 hexadecimal digits.
    fn digits(&mut self) -> String {
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

    /// A token, in the form of Keystone's.
    pub(super) fn token(&mut self) -> String {
        format!("gAAAAAB{}{}", self.digits(), self.digits())
    }

    /// A secret.
    pub(super) fn secret(&mut self) -> String {
        format!("{}-{}", &self.digits()[..43], &self.digits()[..42])
    }

    /// `fa:16:3e:55:09:e9`
    pub(super) fn mac(&mut self) -> String {
        let digits = self.digits();
        format!("fa:16:3e:{}:{}:{}", &digits[..2], &digits[2..4], &digits[4..6])
    }
}

/// The UUID that belongs to a name.
pub(super) fn uuid_of(name: &str) -> String {
    dashed(&hex(name.as_bytes()))
}

/// In place of the MD5 of a public key: the right form.
pub(super) fn fingerprint(key: &str) -> String {
    let digits = hex(key.as_bytes());
    (0..16).map(|at| digits[at * 2..at * 2 + 2].to_owned()).collect::<Vec<_>>().join(":")
}

/// Nova's `hostId`: a digest of project and host.
pub(super) fn host_id(project: &str, host: &str) -> String {
    hex(format!("{project}{host}").as_bytes())[..56].to_owned()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn dashed(digits: &str) -> String {
    format!("{}-{}-4{}-a{}-{}", &digits[..8], &digits[8..12], &digits[13..16], &digits[17..20], &digits[20..32])
}
