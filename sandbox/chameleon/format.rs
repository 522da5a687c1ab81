//! Times and ids in the formats of the services.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::super::ids::{Ids, dashed, hex};

/// Formats as `2026-11-21T01:55:00.000000`.
pub(super) fn long(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.000000").to_string()
}

/// Formats as `2026-11-21 01:55:07`.
pub(super) fn spaced(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Formats as `2026-11-21T01:55:07Z`.
pub(super) fn zulu(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Parses the format that Blazar accepts: `2026-11-21 01:55`.
pub(super) fn read_time(text: &str) -> Option<Timestamp> {
    let time = DateTime::strptime("%Y-%m-%d %H:%M", text).ok()?;
    Some(TimeZone::UTC.to_zoned(time).ok()?.timestamp())
}

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
