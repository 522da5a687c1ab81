//! A program's two streams, read line by line as they come.

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, BufReader};

use super::{OnLine, Stream};
use crate::util::lines::Line;

/// Hands over every line of both streams until both are closed.
pub(super) async fn follow(out: impl AsyncRead + Unpin, err: impl AsyncRead + Unpin, on_line: OnLine<'_>) {
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

/// Reads to the end of the line; says whether more may follow. It may be dropped and begun again.
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

/// Hands over what was read as one line, if anything was.
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
