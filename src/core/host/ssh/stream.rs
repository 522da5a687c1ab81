//! Runs a program with data for its input and from its output: what a sync is made of.

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::{Receiver, Sender};

use super::host::{Channel, SshHost};
use super::path::HostPath;
use crate::error::{Error, ErrorKind, Result};
use crate::host::{ExecEnd, Host as _};

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

    /// The login user there.
    fn account(&self) -> &str;

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

    fn account(&self) -> &str {
        self.user()
    }

    async fn run(
        &self,
        program: &[u8],
        at: HostPath<'_>,
        mut input: Receiver<Vec<u8>>,
        output: Sender<Vec<u8>>,
    ) -> Result<Ended> {
        let mut channel = self.begin_with_data(program.len(), at).await?;
        let (Some(mut to), Some(from), Some(mut err)) =
            (channel.child.stdin().take(), channel.child.stdout().take(), channel.child.stderr().take())
        else {
            return Err(Error::new(ErrorKind::Internal, format!("run a program on {}", self.name()))
                .because("its pipes are missing"));
        };
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
        };
        let begins = &channel.begins;
        let read = async move {
            let mut from = begins.skip(from).await;
            let mut buffer = vec![0_u8; 128 * 1024];
            while let Ok(length @ 1..) = from.read(&mut buffer).await {
                if output.send(buffer[..length].to_vec()).await.is_err() {
                    break;
                }
            }
        };
        let ((), (), said) = tokio::join!(feed, read, last_of(&mut err));
        let end = match self.end(channel).await {
            ExecEnd::Exited(code) => Some(code),
            ExecEnd::Broken => None,
        };
        Ok(Ended { code: end, said })
    }
}

/// Reads everything and keeps the end of it.
pub async fn last_of(from: &mut (impl AsyncRead + Unpin)) -> String {
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
