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

impl StageFile {
    /// One that everybody may read: containers of various users mount single files, and only root can enter the host's
    /// folder.
    pub fn world_readable(path: String, bytes: Vec<u8>) -> Self {
        Self { path, mode: 0o444, bytes }
    }
}
