//! Files for a host.

/// A file to deliver to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageFile {
    /// Path relative to the host's folder.
    pub path: String,
    /// Permission bits, such as `0o600`.
    pub mode: u32,
    /// The contents.
    pub bytes: Vec<u8>,
}
