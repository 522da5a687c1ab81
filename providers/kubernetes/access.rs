//! Ways into a pod: programs, terminals, ports and logs, all through the API server.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{AsyncBufReadExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{Api, AttachParams, AttachedProcess, LogParams, Portforwarder};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, ReadBuf,
};

use super::Kubernetes;
use super::refusal;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::host::{ExecEnd, OnLine, Stream};
use crate::provider::platform::{Duplex, LogOptions};

/// The size of the buffers of a program's streams, in bytes.
const BUFFER: usize = 64 * 1024;
/// The longest line that is passed on, in bytes.
const LONGEST_LINE: u64 = 1 << 20;

/// The container of a pod in which Ray is: an autoscaler may be beside it.
fn container(pod: &str) -> &'static str {
    if pod.contains("-worker-") { "ray-worker" } else { "ray-head" }
}

impl Kubernetes {
    async fn pod_api(&self) -> Result<Api<ApiPod>> {
        Ok(self.place().await?.others())
    }

    /// Runs a shell program in a pod.
    pub(super) async fn run(&self, pod: &str, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        // Servers before 1.30 cannot pass on the end of the input, so that the shell is told how long it is.
        let length = program.len().to_string();
        let command = ["sh", "-c", "head -c \"$0\" | sh -s", &length];
        let params = AttachParams::default().stdin(true).stdout(true).stderr(true).container(container(pod));
        let mut process = self.exec_in(pod, &command, params).await?;
        let (stdin, stdout, stderr) = (process.stdin(), process.stdout(), process.stderr());
        let status = process.take_status();
        let write = async {
            if let Some(mut stdin) = stdin {
                // The program may end before it has read everything.
                let _ = stdin.write_all(program.as_bytes()).await;
                let _ = stdin.flush().await;
                std::future::pending::<()>().await;
            }
        };
        let (lines, mut received) = tokio::sync::mpsc::channel::<(Stream, String)>(64);
        let read = async {
            let out = read_lines(stdout, Stream::Out, lines.clone());
            let err = read_lines(stderr, Stream::Err, lines);
            tokio::join!(out, err);
        };
        let pass = async {
            while let Some((stream, line)) = received.recv().await {
                on_line(stream, &line);
            }
        };
        tokio::select! {
            () = async { tokio::join!(read, pass); } => {}
            () = write => {}
        }
        let answer = match status {
            Some(status) => status.await,
            None => None,
        };
        process.abort();
        Ok(ended(answer.as_ref()))
    }

    /// Starts a command in a pod.
    pub(super) async fn exec_in(&self, pod: &str, command: &[&str], params: AttachParams) -> Result<AttachedProcess> {
        let api = self.pod_api().await?;
        let params = AttachParams {
            max_stdin_buf_size: Some(BUFFER),
            max_stdout_buf_size: Some(BUFFER),
            max_stderr_buf_size: Some(BUFFER),
            ..params
        };
        let doing = format!("run a program in {pod}");
        api.exec(pod, command.iter().copied(), &params).await.map_err(|error| of_upgrade(&doing, &error))
    }

    /// Connects to a port of a pod.
    pub(super) async fn forward(&self, pod: &str, port: u16) -> Result<Box<dyn Duplex>> {
        let doing = format!("connect to port {port} of {pod}");
        let api = self.pod_api().await?;
        let mut forwarder = api.portforward(pod, &[port]).await.map_err(|error| of_upgrade(&doing, &error))?;
        let stream = forwarder.take_stream(port).ok_or_else(|| Error::new(ErrorKind::Internal, doing))?;
        Ok(Box::new(Forwarded { stream, forwarder }))
    }

    /// Reads what a pod's Ray has written.
    pub(super) async fn read_logs(
        &self,
        pod: &str,
        options: &LogOptions,
        on_line: &mut (dyn for<'line> FnMut(&'line str) + Send),
    ) -> Result<()> {
        let doing = format!("read the log of {pod}");
        let api = self.pod_api().await?;
        let params = LogParams {
            container: Some(container(pod).to_owned()),
            follow: options.follow,
            previous: options.previous,
            tail_lines: options.tail.map(i64::from),
            ..LogParams::default()
        };
        let stream = api.log_stream(pod, &params).await.map_err(|error| refusal::of_call(&doing, &error))?;
        let mut lines = stream.lines();
        while let Some(line) = lines.next().await {
            let line = line
                .map_err(|error| Error::new(ErrorKind::Provider, &doing).caused_by(&error).status(Status::Temporary))?;
            on_line(&line);
        }
        Ok(())
    }
}

/// Passes on the lines of a stream.
async fn read_lines(
    stream: Option<impl AsyncRead + Unpin>,
    from: Stream,
    lines: tokio::sync::mpsc::Sender<(Stream, String)>,
) {
    let Some(stream) = stream else { return };
    let mut reader = BufReader::with_capacity(BUFFER, stream);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        match (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&bytes);
        if lines.send((from, text.trim_end_matches(['\n', '\r']).to_owned())).await.is_err() {
            return;
        }
    }
}

/// How a program ended, by the last message of its connection.
pub(super) fn ended(answer: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Status>) -> ExecEnd {
    let Some(answer) = answer else { return ExecEnd::Broken };
    if answer.status.as_deref() == Some("Success") {
        return ExecEnd::Exited(0);
    }
    let causes = answer.details.as_ref().and_then(|details| details.causes.as_ref()).into_iter().flatten();
    let code = causes
        .filter(|cause| cause.reason.as_deref() == Some("ExitCode"))
        .find_map(|cause| cause.message.as_ref()?.parse().ok());
    code.map_or(ExecEnd::Broken, ExecEnd::Exited)
}

/// The error for a connection to a pod that was refused.
fn of_upgrade(doing: &str, error: &kube::Error) -> Error {
    match error {
        kube::Error::UpgradeConnection(error) => {
            let text = error.to_string();
            let failed = Error::new(ErrorKind::Provider, doing).because(&text);
            match text.contains("403") {
                true => failed.hint("you may need the right to `get` and `create` pods/exec and pods/portforward"),
                false => failed.status(Status::Temporary).hint("does the pod run? gpucl status"),
            }
        }
        other => refusal::of_call(doing, other),
    }
}

/// A connection to a port, which ends with this.
struct Forwarded {
    stream: tokio::io::DuplexStream,
    forwarder: Portforwarder,
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

impl AsyncRead for Forwarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Forwarded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
