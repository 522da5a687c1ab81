//! Runs a program with data for its input and from its output: what a sync is made of.

use std::future::Future;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::{Receiver, Sender};

use super::host::{Channel, SshHost};
use super::path::HostPath;
use crate::error::{Error, ErrorKind, Result};
use crate::host::{ExecEnd, Host as _};

/// The size of the buffer of a program's output, in bytes.
const BUFFER: usize = 128 * 1024;
/// How many bytes of a program's stderr are kept: its end.
const SAID: usize = 16 * 1024;

/// How a program ended, and the end of what it wrote to stderr.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; `None` when the connection broke.
    pub code: Option<i32>,
    /// The end of its stderr.
    pub said: String,
}

/// A machine that runs a shell program at a path, with data for its input.
#[async_trait]
pub trait StreamHost: Send + Sync {
    /// The machine's name for messages.
    fn machine(&self) -> &str;

    /// The login user there, who may become root; `None` where nobody may.
    fn account(&self) -> Option<&str>;

    /// Runs a program: its input begins where the program's own text ends; all of its output goes to `output`.
    ///
    /// # Errors
    /// When the program cannot be started.
    async fn run(
        &self,
        program: &[u8],
        at: HostPath<'_>,
        input: Receiver<Vec<u8>>,
        output: Sender<Vec<u8>>,
    ) -> Result<Ended>;
}

impl SshHost {
    /// Starts a program that reads data from stdin after its own text. `dd` takes exactly the program's length first,
    /// since a shell that reads its program from stdin could swallow the data.
    async fn begin_with_data(&self, length: usize, path: HostPath<'_>) -> Result<Channel<'_>> {
        let sudo = if path.is_root && !self.shared.route.is_root() { "sudo -n -- " } else { "" };
        self.begin(&format!("{sudo}{}", path.command(length))).await
    }
}

#[async_trait]
impl StreamHost for SshHost {
    fn machine(&self) -> &str {
        self.name()
    }

    fn account(&self) -> Option<&str> {
        Some(self.user())
    }

    async fn run(
        &self,
        program: &[u8],
        at: HostPath<'_>,
        input: Receiver<Vec<u8>>,
        output: Sender<Vec<u8>>,
    ) -> Result<Ended> {
        let mut channel = self.begin_with_data(program.len(), at).await?;
        let (Some(to), Some(from), Some(errors)) =
            (channel.child.stdin().take(), channel.child.stdout().take(), channel.child.stderr().take())
        else {
            return Err(Error::new(ErrorKind::Internal, format!("run a program on {}", self.name()))
                .because("its pipes are missing"));
        };
        let said = converse(program, input, output, to, channel.begins.skip(from), errors).await;
        let end = match self.end(channel).await {
            ExecEnd::Exited(code) => Some(code),
            ExecEnd::Broken => None,
        };
        Ok(Ended { code: end, said })
    }
}

/// Writes a program and the data after it, and passes its output on, until it ends; returns the end of its stderr.
pub async fn converse<From: AsyncRead + Unpin>(
    program: &[u8],
    mut input: Receiver<Vec<u8>>,
    output: Sender<Vec<u8>>,
    mut to: impl AsyncWrite + Unpin,
    from: impl Future<Output = From>,
    mut errors: impl AsyncRead + Unpin,
) -> String {
    let feed = async move {
        if to.write_all(program).await.is_ok() {
            // A program that stops reading says why in its exit code.
            while let Some(piece) = input.recv().await {
                if to.write_all(&piece).await.is_err() {
                    break;
                }
            }
            let _ = to.flush().await;
        }
        let _ = to.shutdown().await;
    };
    let read = async move {
        let mut from = from.await;
        let mut buffer = vec![0_u8; BUFFER];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            if output.send(buffer[..length].to_vec()).await.is_err() {
                break;
            }
        }
    };
    let talk = async { tokio::join!(read, last_of(&mut errors)).1 };
    tokio::pin!(feed, talk);
    tokio::select! {
        said = &mut talk => said,
        () = &mut feed => talk.await,
    }
}

/// Reads everything and keeps the end of it.
pub(in crate::host) async fn last_of(from: &mut (impl AsyncRead + Unpin)) -> String {
    let mut said = Vec::new();
    let mut buffer = vec![0_u8; 8 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        said.extend_from_slice(&buffer[..length]);
        if said.len() > 2 * SAID {
            said.drain(..said.len() - SAID);
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}
