//! A file that is to lie on a host.

/// A file that is delivered to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageFile {
    /// Its path from the host's folder.
    pub path: String,
    /// Its mode, such as `0o600`.
    pub mode: u32,
    /// What is in it.
    pub bytes: Vec<u8>,
}
