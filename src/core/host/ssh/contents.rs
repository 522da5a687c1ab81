//! How many bytes of files a tar stream carries.

use tar::{EntryType, Header};

/// The unit of a tar stream, in bytes.
const BLOCK: usize = 512;

/// Counts the content of the files in a tar stream that passes in pieces. What it cannot read as a header it skips: the
/// count is for people, and whoever unpacks the stream checks it.
#[derive(Debug, Default)]
pub(super) struct Contents {
    header: Vec<u8>,
    skip: u64,
    bytes: u64,
}

impl Contents {
    /// Takes the next piece.
    pub(super) fn take(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            if self.skip > 0 {
                let step = usize::try_from(self.skip).unwrap_or(usize::MAX).min(piece.len());
                self.skip -= step as u64;
                piece = &piece[step..];
                continue;
            }
            let (more, rest) = piece.split_at((BLOCK - self.header.len()).min(piece.len()));
            self.header.extend_from_slice(more);
            piece = rest;
            if self.header.len() == BLOCK {
                self.read_header();
                self.header.clear();
            }
        }
    }

    /// The bytes of files so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_header(&mut self) {
        let header = Header::from_byte_slice(&self.header);
        let kind = header.entry_type();
        // Between entries, and at the end, are blocks of zeros.
        let has_content = header.as_ustar().is_some() || header.as_gnu().is_some();
        let has_content = has_content && !matches!(kind, EntryType::Directory | EntryType::Link | EntryType::Symlink);
        let Some(size) = has_content.then(|| header.entry_size().ok()).flatten() else { return };
        self.skip = size.div_ceil(BLOCK as u64).saturating_mul(BLOCK as u64);
        if matches!(kind, EntryType::Regular | EntryType::Continuous) {
            self.bytes = self.bytes.saturating_add(size);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_the_content_of_files_is_counted_in_whatever_pieces_it_comes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join("t").join(name);
        fs_err::create_dir_all(at("deep")).unwrap();
        fs_err::write(at("three"), "abc").unwrap();
        fs_err::write(at("empty"), "").unwrap();
        fs_err::write(at("deep/block"), [b'x'; 512]).unwrap();
        // Its name comes in an entry of its own.
        fs_err::write(at(&"n".repeat(200)), [b'y'; 5000]).unwrap();
        std::os::unix::fs::symlink("three", at("link")).unwrap();
        fs_err::hard_link(at("three"), at("again")).unwrap();
        let packed = Command::new("tar").arg("-cf").arg("-").arg("-C").arg(folder.path()).arg("t").output().unwrap();
        assert!(packed.status.success() && packed.stdout.len() >= 10_240);
        for size in [1, 100, 512, 700, 100_000] {
            let mut contents = Contents::default();
            packed.stdout.chunks(size).for_each(|piece| contents.take(piece));
            assert_eq!(contents.bytes(), 3 + 512 + 5000, "in pieces of {size}");
        }
    }
}
