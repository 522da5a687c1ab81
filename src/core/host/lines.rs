//! Reads a program's stdout and stderr line by line as they arrive.

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, BufReader};

use super::{OnLine, Stream};
use crate::util::lines::Line;

/// Passes every line of both streams to `on_line` until both are closed. What a line has beyond
/// [`LINE_LIMIT`](crate::util::lines::LINE_LIMIT) is cut, with a mark.
pub async fn follow(out: impl AsyncRead + Unpin, err: impl AsyncRead + Unpin, on_line: OnLine<'_>) {
    let (mut out, mut err) = (BufReader::new(out), BufReader::new(err));
    let (mut out_line, mut err_line) = (Line::default(), Line::default());
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        tokio::select! {
            more = read(&mut out_line, &mut out), if out_open => {
                out_open = more;
                hand_over(&mut out_line, Stream::Out, on_line);
            }
            more = read(&mut err_line, &mut err), if err_open => {
                err_open = more;
                hand_over(&mut err_line, Stream::Err, on_line);
            }
        }
    }
}

/// Reads to the end of the line; returns whether more may follow. Cancel-safe.
async fn read(line: &mut Line, from: &mut (impl AsyncBufRead + Unpin)) -> bool {
    loop {
        let Ok(there) = from.fill_buf().await else { return false };
        if there.is_empty() {
            return false;
        }
        let used = line.take(there);
        from.consume(used);
        if line.is_whole() {
            return true;
        }
    }
}

/// Passes on the line read so far, if any.
fn hand_over(line: &mut Line, stream: Stream, on_line: OnLine<'_>) {
    if let Some(text) = line.finish() {
        on_line(stream, &text);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::util::lines::LINE_LIMIT;

    async fn lines(out: impl AsyncRead + Unpin) -> Vec<String> {
        let mut seen = Vec::new();
        follow(out, tokio::io::empty(), &mut |_, line: &str| seen.push(line.to_owned())).await;
        seen
    }

    #[tokio::test]
    async fn lines_arrive_whole_and_the_last_needs_no_newline() {
        assert_eq!(lines(&b"one\n\ntwo \xff\nthree"[..]).await, ["one", "", "two \u{fffd}", "three"]);
        assert_eq!(lines(&b""[..]).await, Vec::<String>::new());
    }

    /// A host that writes without end: the beginning of the line is passed on, and the next line is read as usual.
    #[tokio::test]
    async fn a_line_without_an_end_is_cut_with_a_mark() {
        const LONG: u64 = 256 * 1024 * 1024;
        let seen = lines(tokio::io::repeat(b'x').take(LONG).chain(&b"\nnext\n"[..])).await;
        assert_eq!(seen.len(), 2);
        let cut = LONG - LINE_LIMIT as u64;
        assert!(seen[0].ends_with(&format!("x … (cut: {cut} more bytes)")));
        assert!(seen[0].len() < LINE_LIMIT + 100, "{}", seen[0].len());
        assert_eq!(seen[1], "next");
    }
}
