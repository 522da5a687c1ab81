//! Ways into a pod: programs, terminals, ports and logs, all through the API server.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{AsyncBufRead, AsyncBufReadExt as _, SinkExt as _};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{Api, AttachParams, AttachedProcess, LogParams, Portforwarder, TerminalSize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Kubernetes;
use super::names::GUARD_CONTAINER;
use super::refusal;
use crate::error::{Error, ErrorKind, Result, Status};
use crate::host::ExecEnd;
use crate::provider::platform::{Duplex, LogOptions, Part, Running};
use crate::util::lines::Line;

/// The size of the buffers of a program's streams, in bytes.
const BUFFER: usize = 64 * 1024;

/// The container of a pod in which Ray is: an autoscaler and the guard may be beside it.
fn container(pod: &str) -> &'static str {
    if pod.contains("-worker-") { "ray-worker" } else { "ray-head" }
}

/// The container of this part of a pod.
fn container_of(pod: &str, part: Part) -> &'static str {
    match part {
        Part::Ray => container(pod),
        Part::Guard => GUARD_CONTAINER,
    }
}

impl Kubernetes {
    async fn pod_api(&self) -> Result<Api<ApiPod>> {
        let place = self.place().await?;
        Ok(Api::namespaced(place.client.clone(), &place.namespace))
    }

    /// Starts a program in a pod.
    pub(super) async fn run(
        &self,
        pod: &str,
        part: Part,
        command: &[&str],
        terminal: Option<(u16, u16)>,
    ) -> Result<Running> {
        let doing = || format!("run a program in {pod}");
        let api = self.pod_api().await?;
        let params = AttachParams {
            stdin: true,
            stdout: true,
            // In a terminal all is output.
            stderr: terminal.is_none(),
            tty: terminal.is_some(),
            container: Some(container_of(pod, part).to_owned()),
            max_stdin_buf_size: Some(BUFFER),
            max_stdout_buf_size: Some(BUFFER),
            max_stderr_buf_size: Some(BUFFER),
        };
        let started = api.exec(pod, command.iter().copied(), &params).await;
        let mut process = started.map_err(|error| of_upgrade(&doing(), &error))?;
        let (Some(input), Some(output)) = (process.stdin(), process.stdout()) else {
            return Err(Error::new(ErrorKind::Internal, doing()).because("its streams are missing"));
        };
        let errors: Box<dyn AsyncRead + Send + Unpin> = match process.stderr() {
            Some(errors) => Box::new(errors),
            None => Box::new(tokio::io::empty()),
        };
        let (resize, mut sizes) = tokio::sync::mpsc::channel::<(u16, u16)>(4);
        if let (Some(mut sized), Some(size)) = (process.terminal_size(), terminal) {
            let _ = resize.try_send(size);
            tokio::spawn(async move {
                while let Some((width, height)) = sizes.recv().await {
                    if sized.send(TerminalSize { height, width }).await.is_err() {
                        break;
                    }
                }
            });
        }
        let status = process.take_status();
        let process = Ends(process);
        let ended = async move {
            let answer = match status {
                Some(status) => status.await,
                None => None,
            };
            drop(process);
            ended(answer.as_ref())
        };
        Ok(Running { input: Box::new(input), output: Box::new(output), errors, resize, ended: Box::pin(ended) })
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
            container: Some(container_of(pod, options.part).to_owned()),
            follow: options.follow,
            previous: options.previous,
            tail_lines: options.tail.map(i64::from),
            ..LogParams::default()
        };
        let stream = api.log_stream(pod, &params).await.map_err(|error| refusal::of_call(&doing, &error))?;
        pass_lines(stream, on_line)
            .await
            .map_err(|error| Error::new(ErrorKind::Provider, &doing).caused_by(&error).status(Status::Temporary))
    }
}

/// Passes on the lines of a log until its end. What a line has beyond the limit of [`Line`] is cut, with a mark.
async fn pass_lines(
    log: impl AsyncBufRead,
    on_line: &mut (dyn for<'line> FnMut(&'line str) + Send),
) -> std::io::Result<()> {
    let mut log = std::pin::pin!(log);
    let mut line = Line::default();
    loop {
        let there = log.fill_buf().await?;
        let (used, is_end) = (line.take(there), there.is_empty());
        log.consume_unpin(used);
        if (line.is_whole() || is_end)
            && let Some(text) = line.finish()
        {
            on_line(text.strip_suffix('\r').unwrap_or(&text));
        }
        if is_end {
            return Ok(());
        }
    }
}

/// A connection to a program, which ends with this.
struct Ends(AttachedProcess);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::lines::LINE_LIMIT;

    #[tokio::test]
    async fn a_log_is_read_line_by_line_and_what_is_too_long_is_cut() {
        let log = format!("one\r\n\n{}\nlast", "x".repeat(LINE_LIMIT + 7));
        let mut seen = Vec::new();
        pass_lines(log.as_bytes(), &mut |line: &str| seen.push(line.to_owned())).await.unwrap();
        assert!(seen[2].ends_with("x … (cut: 7 more bytes)"), "{}", seen[2].len());
        seen[2].clear();
        assert_eq!(seen, ["one", "", "", "last"]);
    }
}
