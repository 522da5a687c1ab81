//! Reads lines from untrusted output, each kept up to a limit.

/// The maximum kept of a line, in bytes.
pub const LINE_LIMIT: usize = 4 * 1024 * 1024;

/// A line that may not be complete yet.
#[derive(Debug, Default)]
pub struct Line {
    kept: Vec<u8>,
    /// The number of bytes that were not kept.
    cut: u64,
    is_whole: bool,
}

impl Line {
    /// Consumes the bytes that belong to the line, including its newline; returns their number.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let piece = end.map_or(bytes, |at| &bytes[..at]);
        let room = LINE_LIMIT.saturating_sub(self.kept.len()).min(piece.len());
        self.kept.extend_from_slice(&piece[..room]);
        self.cut += (piece.len() - room) as u64;
        self.is_whole = end.is_some();
        end.map_or(bytes.len(), |at| at + 1)
    }

    /// Whether its end was read.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns the line as text and begins the next; `None` if there is nothing. Invalid UTF-8 is replaced.
    pub fn finish(&mut self) -> Option<String> {
        // Frees the memory of a long line.
        let line = std::mem::take(self);
        if line.kept.is_empty() && !line.is_whole {
            return None;
        }
        let text = String::from_utf8_lossy(&line.kept);
        Some(match line.cut {
            0 => text.into_owned(),
            cut => format!("{text} … (cut: {cut} more bytes)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_the_limit() {
        let mut line = Line::default();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..64 {
            assert_eq!(line.take(&piece), piece.len());
        }
        assert!(line.kept.capacity() <= 2 * LINE_LIMIT, "{}", line.kept.capacity());
        line.take(b"\n");
        assert!(line.finish().unwrap().ends_with(&format!("(cut: {} more bytes)", (64 << 20) - LINE_LIMIT)));
        assert_eq!(line.kept.capacity(), 0, "the memory of a long line is kept");
    }
}
