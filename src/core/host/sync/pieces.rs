//! Streams of files in pieces: what goes out, and a file that must not become shorter meanwhile.

use std::io::{Read, Write};

use tokio::sync::mpsc::Sender;

/// How large the pieces of a stream are.
pub(super) const PIECE: usize = 128 * 1024;

/// A file that has to have as many bytes as its header says.
pub(super) struct Whole {
    pub(super) file: std::fs::File,
    pub(super) left: u64,
}

impl Read for Whole {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        let read = self.file.read(&mut into[..wanted])?;
        if read == 0 {
            return Err(std::io::Error::other("a file became shorter while it was read; run it again"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// A writer whose pieces go to a channel; blocks while it is full.
pub(super) struct Outgoing {
    into: Sender<Vec<u8>>,
    piece: Vec<u8>,
}

impl Outgoing {
    pub(super) fn new(into: Sender<Vec<u8>>) -> Self {
        Self { into, piece: Vec::with_capacity(PIECE) }
    }
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        if piece.is_empty() {
            return Ok(());
        }
        self.into.blocking_send(piece).map_err(|_| std::io::ErrorKind::BrokenPipe.into())
    }
}
