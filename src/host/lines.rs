//! A program's two streams, read line by line as they come.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

use super::{OnLine, Stream};

/// Hands over every line of both streams until both are closed.
pub(super) async fn follow(out: impl AsyncRead + Unpin, err: impl AsyncRead + Unpin, on_line: OnLine<'_>) {
    let (mut out, mut err) = (BufReader::new(out), BufReader::new(err));
    // `read_until` may be dropped and begun again: what it has read stays in its buffer.
    let (mut out_line, mut err_line) = (Vec::new(), Vec::new());
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        tokio::select! {
            read = out.read_until(b'\n', &mut out_line), if out_open => {
                out_open = matches!(read, Ok(1..));
                hand_over(&mut out_line, Stream::Out, on_line);
            }
            read = err.read_until(b'\n', &mut err_line), if err_open => {
                err_open = matches!(read, Ok(1..));
                hand_over(&mut err_line, Stream::Err, on_line);
            }
        }
    }
}

/// Hands over what was read as one line, if anything was. Bytes that are not UTF-8 are shown as such.
fn hand_over(line: &mut Vec<u8>, stream: Stream, on_line: OnLine<'_>) {
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.is_empty() {
        return;
    }
    on_line(stream, &String::from_utf8_lossy(line));
    line.clear();
}
