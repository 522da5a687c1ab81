//! A program's two streams, read line by line as they come.

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, BufReader};

use super::{OnLine, Stream};

/// How much of a line is kept: what runs on a host decides how long its lines are, and this machine's memory is not theirs.
const LINE_LIMIT: usize = 4 * 1024 * 1024;

/// Hands over every line of both streams until both are closed.
pub(super) async fn follow(out: impl AsyncRead + Unpin, err: impl AsyncRead + Unpin, on_line: OnLine<'_>) {
    let (mut out, mut err) = (BufReader::new(out), BufReader::new(err));
    let (mut out_line, mut err_line) = (Line::default(), Line::default());
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        tokio::select! {
            more = out_line.read(&mut out), if out_open => {
                out_open = more;
                out_line.hand_over(Stream::Out, on_line);
            }
            more = err_line.read(&mut err), if err_open => {
                err_open = more;
                err_line.hand_over(Stream::Err, on_line);
            }
        }
    }
}

/// A line as far as it was read.
#[derive(Default)]
struct Line {
    kept: Vec<u8>,
    /// How many bytes of it were not kept.
    cut: u64,
}

impl Line {
    /// Reads to the end of the line; says whether more may follow. It may be dropped and begun again.
    async fn read(&mut self, from: &mut (impl AsyncBufRead + Unpin)) -> bool {
        loop {
            let Ok(there) = from.fill_buf().await else { return false };
            if there.is_empty() {
                return false;
            }
            let end = there.iter().position(|byte| *byte == b'\n');
            let piece = end.map_or(there, |at| &there[..at]);
            let room = LINE_LIMIT.saturating_sub(self.kept.len()).min(piece.len());
            self.kept.extend_from_slice(&piece[..room]);
            self.cut += (piece.len() - room) as u64;
            let used = end.map_or(there.len(), |at| at + 1);
            from.consume(used);
            if end.is_some() {
                // What tells it from nothing at all, where the line is empty.
                self.kept.push(b'\n');
                return true;
            }
        }
    }

    /// Hands over what was read as one line, if anything was. Bytes that are not UTF-8 are shown as such.
    fn hand_over(&mut self, stream: Stream, on_line: OnLine<'_>) {
        if self.kept.last() == Some(&b'\n') {
            self.kept.pop();
        } else if self.kept.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(&self.kept);
        match self.cut {
            0 => on_line(stream, &text),
            cut => on_line(stream, &format!("{text} … (cut: the line goes on for {cut} bytes)")),
        }
        // A long line's room is given back.
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn lines(out: impl AsyncRead + Unpin) -> Vec<String> {
        let mut seen = Vec::new();
        follow(out, tokio::io::empty(), &mut |_, line: &str| seen.push(line.to_owned())).await;
        seen
    }

    #[tokio::test]
    async fn lines_come_whole_and_the_last_one_without_its_end() {
        assert_eq!(lines(&b"one\n\ntwo \xff\nthree"[..]).await, ["one", "", "two \u{fffd}", "three"]);
        assert_eq!(lines(&b""[..]).await, Vec::<String>::new());
    }

    /// A host that writes zeros for ever: of 256 MiB in one line 4 MiB are kept, and what follows is read as ever.
    #[tokio::test]
    async fn a_line_without_an_end_is_cut_with_a_mark_and_takes_no_more_memory() {
        const LONG: u64 = 256 * 1024 * 1024;
        let before = peak();
        let seen = lines(tokio::io::repeat(b'x').take(LONG).chain(&b"\nnext\n"[..])).await;
        assert_eq!(seen.len(), 2);
        let cut = LONG - LINE_LIMIT as u64;
        assert!(seen[0].ends_with(&format!("x … (cut: the line goes on for {cut} bytes)")));
        assert!(seen[0].len() < LINE_LIMIT + 100, "{}", seen[0].len());
        assert_eq!(seen[1], "next");
        // Other tests of this process take memory too, but not as much as the line would.
        assert!(peak() - before < LONG / 2, "{} MiB more", (peak() - before) >> 20);
    }

    /// The most memory that this process ever had, in bytes.
    fn peak() -> u64 {
        let status = fs_err::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}
