//! A line of what others write: kept whole up to a limit, since how long their lines are is not theirs to decide.

/// How much of a line is kept.
pub const LINE_LIMIT: usize = 4 * 1024 * 1024;

/// A line as far as it was read.
#[derive(Debug, Default)]
pub struct Line {
    kept: Vec<u8>,
    /// How many bytes of it were not kept.
    cut: u64,
    is_whole: bool,
}

impl Line {
    /// Takes what of these bytes belongs to the line, its end included; says how many bytes those are.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let piece = end.map_or(bytes, |at| &bytes[..at]);
        let room = LINE_LIMIT.saturating_sub(self.kept.len()).min(piece.len());
        self.kept.extend_from_slice(&piece[..room]);
        self.cut += (piece.len() - room) as u64;
        self.is_whole = end.is_some();
        end.map_or(bytes.len(), |at| at + 1)
    }

    /// Its end was met.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// What was taken, as text, and begins the next line; `None` where nothing was. Bytes that are not UTF-8 are shown as such.
    pub fn finish(&mut self) -> Option<String> {
        // A long line's room is given back.
        let line = std::mem::take(self);
        if line.kept.is_empty() && !line.is_whole {
            return None;
        }
        let text = String::from_utf8_lossy(&line.kept);
        Some(match line.cut {
            0 => text.into_owned(),
            cut => format!("{text} … (cut: the line goes on for {cut} bytes)"),
        })
    }
}
