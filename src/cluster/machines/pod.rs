//! A node of a platform, as a host that runs programs and holds files.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use super::pods::{Pods, short};
use crate::error::Result;
use crate::host::{Ended, ExecEnd, Host, HostPath, OnLine, StreamHost, converse, follow_lines};
use crate::provider::platform::{Member, Running};

/// A node of a platform.
pub struct PodHost {
    pods: Arc<Pods>,
    name: String,
    member: String,
}

impl PodHost {
    /// This node of a cluster.
    pub fn new(pods: &Arc<Pods>, member: &Member) -> Self {
        Self { pods: Arc::clone(pods), name: short(pods.scope(), member), member: member.name.clone() }
    }

    /// The platform's name for it.
    pub fn member(&self) -> &str {
        &self.member
    }

    /// Starts a program in it.
    pub async fn start(&self, command: &[&str], terminal: Option<(u16, u16)>) -> Result<Running> {
        self.pods.platform()?.start(&self.member, command, terminal).await
    }
}

#[async_trait]
impl Host for PodHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn home(&self) -> &str {
        "/tmp/gpucl"
    }

    async fn exec(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        // The program's own commands find its end as their input, on servers that cannot pass one on, too.
        let length = program.len().to_string();
        let shell = self.start(&["sh", "-c", "head -c \"$0\" | sh -s", &length], None).await?;
        Ok(feed_and_follow(shell, program, on_line).await)
    }
}

#[async_trait]
impl StreamHost for PodHost {
    fn machine(&self) -> &str {
        &self.name
    }

    fn account(&self) -> Option<&str> {
        None
    }

    async fn run(
        &self,
        program: &[u8],
        at: HostPath<'_>,
        pieces: mpsc::Receiver<Vec<u8>>,
        into: mpsc::Sender<Vec<u8>>,
    ) -> Result<Ended> {
        let command = at.command(program.len());
        let Running { input, output, errors, resize: _resize, ended } =
            self.start(&["sh", "-c", &command], None).await?;
        let said = converse(program, pieces, into, input, std::future::ready(output), errors).await;
        let code = match ended.await {
            ExecEnd::Exited(code) => Some(code),
            ExecEnd::Broken => None,
        };
        Ok(Ended { code, said })
    }
}

/// Writes a program to the shell that reads it, and passes on its lines until it ends.
async fn feed_and_follow(shell: Running, program: &str, on_line: OnLine<'_>) -> ExecEnd {
    let Running { mut input, output, errors, resize: _resize, ended } = shell;
    let write = async {
        // The program may end before it has read everything.
        let _ = input.write_all(program.as_bytes()).await;
        let _ = input.flush().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = follow_lines(output, errors, on_line) => {}
        () = write => {}
    }
    ended.await
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::host::Stream;
    use crate::util::lines::LINE_LIMIT;

    #[tokio::test]
    async fn a_line_that_is_too_long_is_cut_with_a_mark() {
        let long = tokio::io::repeat(b'x').take(LINE_LIMIT as u64 + 7).chain(&b"\nnext\n"[..]);
        let shell = Running {
            input: Box::new(tokio::io::sink()),
            output: Box::new(long),
            errors: Box::new(&b"why"[..]),
            resize: mpsc::channel(1).0,
            ended: Box::pin(async { ExecEnd::Exited(3) }),
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut on_line = |stream, line: &str| match stream {
            Stream::Out => out.push(line.to_owned()),
            Stream::Err => err.push(line.to_owned()),
        };
        assert_eq!(feed_and_follow(shell, "true", &mut on_line).await, ExecEnd::Exited(3));
        assert!(out[0].ends_with("x … (cut: 7 more bytes)"), "{}", out[0].len());
        assert_eq!((out.len(), out[1].as_str(), err), (2, "next", vec!["why".to_owned()]));
    }
}
