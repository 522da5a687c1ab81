//! What the start-up files of a login print before a command begins: dropped, or it would be taken for the command's.

use std::io::Cursor;

use tokio::io::{AsyncRead, AsyncReadExt as _, Chain};

use crate::error::Result;
use crate::util::random;

/// How much a login may print before a command begins, in bytes.
const LIMIT: usize = 1 << 20;

/// A line that no start-up file prints: behind it is what the command prints.
#[derive(Debug)]
pub(super) struct Beginning(String);

impl Beginning {
    /// One for one command.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(format!("gpucl-begins-{}", random::letters(16)?)))
    }

    /// The command that prints the line and then becomes `command`, in words of every user's shell.
    pub(super) fn before(&self, command: &str) -> String {
        format!("printf '\\n{}\\n'; exec {command}", self.0)
    }

    /// What comes behind the line; all of it where there is no such line, since that says what went wrong.
    pub(super) async fn skip<R: AsyncRead + Unpin>(&self, mut from: R) -> Chain<Cursor<Vec<u8>>, R> {
        let line = format!("\n{}\n", self.0);
        let (mut seen, mut buffer) = (Vec::new(), [0_u8; 8 * 1024]);
        while seen.len() < LIMIT {
            let Ok(length @ 1..) = from.read(&mut buffer).await else { break };
            seen.extend_from_slice(&buffer[..length]);
            let from_here = seen.len().saturating_sub(length + line.len());
            let mut places = seen[from_here..].windows(line.len());
            if let Some(at) = places.position(|place| place == line.as_bytes()) {
                seen.drain(..from_here + at + line.len());
                break;
            }
        }
        Cursor::new(seen).chain(from)
    }
}

#[cfg(test)]
mod tests {
    use tokio::process::Command;

    use super::*;

    /// What is left of the output of a shell with these start-up files.
    async fn left(startup: &str, command: &str) -> String {
        let begins = Beginning::new().unwrap();
        let all = format!("{startup}\n{}", begins.before(command));
        let mut child = Command::new("sh").args(["-c", &all]).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        begins.skip(child.stdout.take().unwrap()).await.read_to_string(&mut text).await.unwrap();
        child.wait().await.unwrap();
        text
    }

    #[tokio::test]
    async fn what_start_up_files_print_is_dropped() {
        let command = "sh -c 'echo one; printf two'";
        for startup in ["", "echo Welcome to gpu1!", "printf 'no end of a line'", "seq 20000; false", "printf '\\n\\n'"]
        {
            assert_eq!(left(startup, command).await, "one\ntwo", "{startup}");
        }
        assert_eq!(left("", "true").await, "");
        // The session ends before the command begins.
        assert_eq!(left("echo no entry; exit 1", command).await, "no entry\n");
    }
}
