//! Reads a local log in chunks: neither the file nor one of its lines has to fit into memory.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind as Io, Read as _, Result, Seek as _, SeekFrom};
use std::path::PathBuf;

use crate::util::fs::open_regular;
use crate::util::lines::Line;

/// How many bytes are read at once.
const PIECE: usize = 64 << 10;

/// A log file, and the offset read so far.
pub(super) struct LogFile {
    path: PathBuf,
    offset: u64,
    /// The beginning of a line whose end has not been read yet.
    line: Line,
    /// How many lines from the end to read; taken by the first read.
    tail: Option<usize>,
}

impl LogFile {
    /// Reads from the beginning, or only the last `tail` lines.
    pub(super) fn new(path: PathBuf, tail: Option<usize>) -> Self {
        Self { path, offset: 0, line: Line::default(), tail }
    }

    /// Passes every new complete line to `on_line`. A file that does not exist yet is empty.
    pub(super) fn read(&mut self, mut on_line: impl FnMut(&str)) -> Result<()> {
        let mut file = match open_regular(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == Io::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if let Some(lines) = self.tail.take() {
            self.offset = start_of_last(&mut file, lines)?;
        }
        file.seek(SeekFrom::Start(self.offset))?;
        // Only up to the current end: a fast writer must not keep this loop running.
        let there_is = file.metadata()?.len().saturating_sub(self.offset);
        let mut from = BufReader::with_capacity(PIECE, file.take(there_is));
        loop {
            let there = from.fill_buf()?;
            if there.is_empty() {
                return Ok(());
            }
            let used = self.line.take(there);
            from.consume(used);
            self.offset += used as u64;
            if self.line.is_whole()
                && let Some(text) = self.line.finish()
            {
                on_line(&text);
            }
        }
    }

    /// The last line, if it has no line end.
    pub(super) fn rest(&mut self) -> Option<String> {
        self.line.finish()
    }
}

/// The offset of the last `lines` lines.
fn start_of_last(file: &mut File, lines: usize) -> Result<u64> {
    let end = file.metadata()?.len();
    let (mut at, mut left) = (end, lines);
    let mut piece = Vec::with_capacity(PIECE);
    while at > 0 && left > 0 {
        let size = at.min(PIECE as u64);
        at -= size;
        piece.clear();
        file.seek(SeekFrom::Start(at))?;
        file.by_ref().take(size).read_to_end(&mut piece)?;
        for (index, _) in piece.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let begin = at + index as u64 + 1;
            // The last line end begins no further line.
            if begin == end {
                continue;
            }
            left -= 1;
            if left == 0 {
                return Ok(begin);
            }
        }
    }
    Ok(if lines == 0 { end } else { 0 })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn lines(log: &mut LogFile) -> Vec<String> {
        let mut all = Vec::new();
        log.read(|line| all.push(line.to_owned())).unwrap();
        all
    }

    #[test]
    fn lines_written_in_pieces_are_read_once_and_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = LogFile::new(path.clone(), None);
        assert!(lines(&mut log).is_empty(), "a file that is not there yet");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\n\ntw").unwrap();
        assert_eq!(lines(&mut log), ["one", ""]);
        file.write_all(b"o\nthree").unwrap();
        assert_eq!(lines(&mut log), ["two"]);
        assert_eq!((log.rest().as_deref(), log.rest()), (Some("three"), None));
    }

    #[test]
    fn the_last_lines_are_found_from_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let whole: Vec<String> = (0..30_000).map(|number| format!("line {number}")).collect();
        for end in ["\n", ""] {
            fs_err::write(&path, whole.join("\n") + end).unwrap();
            for tail in [0, 1, 2, 7, 20_000, 29_999, 30_000, 40_000] {
                let mut log = LogFile::new(path.clone(), Some(tail));
                let mut last = lines(&mut log);
                last.extend(log.rest());
                assert_eq!(last, whole[whole.len().saturating_sub(tail)..], "{tail} of a log that ends with {end:?}");
            }
        }
        fs_err::write(&path, "").unwrap();
        assert!(lines(&mut LogFile::new(path, Some(3))).is_empty());
    }

    /// A job may log anything: a line of 256 MiB is cut, and the last lines are found from the end.
    #[test]
    fn a_log_larger_than_memory_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = File::create(&path).unwrap();
        file.set_len(256 << 20).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"\nlast\n").unwrap();
        assert_eq!(lines(&mut LogFile::new(path.clone(), Some(1))), ["last"]);
        let all = lines(&mut LogFile::new(path, None));
        assert_eq!(all.len(), 2);
        assert!(all[0].len() < 5 << 20 && all[0].ends_with("bytes)"), "{}", all[0].len());
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        assert!(LogFile::new(path, None).read(|_| {}).is_err());
    }
}
