//! Ids in the formats of these services.

pub(super) use super::super::ids::Ids;
use super::super::ids::{dashed, hex};

impl Ids {
    /// A new token in Keystone's format.
    pub(super) fn token(&mut self) -> String {
        format!("gAAAAAB{}{}", self.digits(), self.digits())
    }

    /// A new secret of an application credential.
    pub(super) fn secret(&mut self) -> String {
        format!("{}-{}", &self.digits()[..43], &self.digits()[..42])
    }

    /// A new MAC address: `fa:16:3e:55:09:e9`.
    pub(super) fn mac(&mut self) -> String {
        let digits = self.digits();
        format!("fa:16:3e:{}:{}:{}", &digits[..2], &digits[2..4], &digits[4..6])
    }
}

/// The UUID derived from a name.
pub(super) fn uuid_of(name: &str) -> String {
    dashed(&hex(name.as_bytes()))
}

/// A fingerprint in the format of an MD5 of a public key, but from another digest.
pub(super) fn fingerprint(key: &str) -> String {
    let digits = hex(key.as_bytes());
    (0..16).map(|at| digits[at * 2..at * 2 + 2].to_owned()).collect::<Vec<_>>().join(":")
}

/// Nova's `hostId`: a digest of the project and the host.
pub(super) fn host_id(project: &str, host: &str) -> String {
    hex(format!("{project}{host}").as_bytes())[..56].to_owned()
}
