//! A node of a platform, as a host that runs programs and holds files.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::pods::{Pods, short};
use crate::error::Result;
use crate::host::{Ended, ExecEnd, Host, HostPath, OnLine, StreamHost, follow, last_of};
use crate::provider::platform::{DATA, Member, Running};

/// The size of the buffers of a program's streams, in bytes.
const BUFFER: usize = 64 * 1024;

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

    /// Its data folder.
    pub fn data(&self) -> &'static str {
        DATA
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
        let Running { mut input, output, errors, resize: _resize, ended } =
            self.start(&["sh", "-c", "head -c \"$0\" | sh -s", &length], None).await?;
        let write = async {
            // The program may end before it has read everything.
            let _ = input.write_all(program.as_bytes()).await;
            let _ = input.flush().await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = follow(output, errors, on_line) => {}
            () = write => {}
        }
        Ok(ended.await)
    }
}

#[async_trait]
impl StreamHost for PodHost {
    fn machine(&self) -> &str {
        &self.name
    }

    fn account(&self) -> &str {
        "of the pod"
    }

    async fn run(
        &self,
        program: &[u8],
        at: HostPath<'_>,
        mut pieces: mpsc::Receiver<Vec<u8>>,
        into: mpsc::Sender<Vec<u8>>,
    ) -> Result<Ended> {
        let command = at.command(program.len());
        let Running { mut input, mut output, mut errors, resize: _resize, ended } =
            self.start(&["sh", "-c", &command], None).await?;
        let feed = async move {
            if input.write_all(program).await.is_ok() {
                // A program that stops reading says why in its exit code.
                while let Some(piece) = pieces.recv().await {
                    if input.write_all(&piece).await.is_err() {
                        break;
                    }
                }
                let _ = input.flush().await;
            }
            let _ = input.shutdown().await;
        };
        let read = async move {
            let mut buffer = vec![0_u8; BUFFER];
            while let Ok(length @ 1..) = output.read(&mut buffer).await {
                if into.send(buffer[..length].to_vec()).await.is_err() {
                    break;
                }
            }
        };
        let talk = async { tokio::join!(read, last_of(&mut errors)).1 };
        tokio::pin!(feed, talk);
        let said = tokio::select! {
            said = &mut talk => said,
            () = &mut feed => talk.await,
        };
        let code = match ended.await {
            ExecEnd::Exited(code) => Some(code),
            ExecEnd::Broken => None,
        };
        Ok(Ended { code, said })
    }
}
