//! A node of a platform, as a host that runs programs and holds files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use super::pods::{Pods, short};
use crate::error::Result;
use crate::host::{Ended, ExecEnd, Host, HostPath, OnLine, StreamHost, converse, follow_lines};
use crate::provider::platform::{Member, Part, Running};
use crate::runtime::project::{GuardAsk, GuardInPod};
use crate::spec::{ExternalStore, Spec, external_credentials};

/// A node of a platform.
pub struct PodHost {
    pods: Arc<Pods>,
    name: String,
    member: String,
    part: Part,
}

impl PodHost {
    /// This node of a cluster.
    pub fn new(pods: &Arc<Pods>, member: &Member) -> Self {
        Self { pods: Arc::clone(pods), name: short(pods.scope(), member), member: member.name.clone(), part: Part::Ray }
    }

    /// The container beside it in which the guard of the end runs.
    pub(super) fn of_guard(&self) -> Self {
        let (pods, name, member) = (Arc::clone(&self.pods), self.name.clone(), self.member.clone());
        Self { pods, name, member, part: Part::Guard }
    }

    /// The platform's name for it.
    pub fn member(&self) -> &str {
        &self.member
    }

    /// Starts a program in it.
    pub async fn start(&self, command: &[&str], terminal: Option<(u16, u16)>) -> Result<Running> {
        self.pods.platform()?.start(&self.member, self.part, command, terminal).await
    }
}

/// The guard in the head's pod.
pub(in crate::cluster) struct PodGuard {
    guard: GuardInPod,
    /// It gets its files whether it has them or not, such as from an `up`: keys may be other ones.
    pub(super) always_brings: bool,
    /// The folder with the cluster's token.
    credentials: PathBuf,
    /// The store that outlives the cluster.
    store: Option<ExternalStore>,
}

impl PodGuard {
    /// That of a cluster whose folder this is.
    pub(in crate::cluster) fn new(guard: GuardInPod, spec: &Spec, folder: &Path, always_brings: bool) -> Self {
        Self { guard, always_brings, credentials: folder.to_owned(), store: spec.store_at_end() }
    }

    /// What has it do something.
    pub(super) fn script(&self, ask: &GuardAsk<'_>) -> String {
        self.guard.script(ask)
    }

    /// The same, which brings it its files before.
    ///
    /// # Errors
    /// If the token or the keys of the store cannot be read.
    pub(super) fn script_with_files(&self, ask: &GuardAsk<'_>) -> Result<String> {
        let keys = self.store.as_ref().map(|store| external_credentials(&store.credentials_file, &store.profile));
        let token = crate::secret::ensure_ray_token(&self.credentials)?;
        self.guard.script_with_files(ask, &token, keys.transpose()?.as_ref())
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
