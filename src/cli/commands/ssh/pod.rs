//! A shell in a pod, with this terminal.

use std::io::{IsTerminal as _, Read as _};
use std::sync::Arc;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::Args;
use crate::cli::app::App;
use crate::cli::exit_code;
use crate::cluster::{PodHost, Pods};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::{ExecEnd, Host as _, Stream};
use crate::provider::platform::Running;

/// The shell: the best that the image has.
const SHELL: [&str; 3] = ["sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"];
/// How much is read at once, in bytes.
const BUFFER: usize = 16 * 1024;

/// Runs a shell or a command in a pod until it ends; returns its exit code.
pub(super) async fn run(app: &App, args: &Args, pods: &Arc<Pods>) -> Result<u8> {
    if args.forget_host_key {
        return Err(Error::new(ErrorKind::Unsupported, "forget a host key")
            .because("the cluster's pods are reached through their platform, without SSH"));
    }
    let host = PodHost::new(pods, &pods.named(args.host.as_deref().unwrap_or("head")).await?);
    let doing = || format!("open a terminal in {}", host.name());
    let words: Vec<&str> = args.command.iter().map(String::as_str).collect();
    let command = if words.is_empty() { SHELL.as_slice() } else { words.as_slice() };
    let size = if std::io::stdin().is_terminal() { terminal_size() } else { None };
    let Running { input, mut output, mut errors, resize, ended } = host.start(command, size).await?;
    let raw = match size {
        Some(_) => Some(Raw::begin().doing(ErrorKind::Host, doing)?),
        None => None,
    };
    let mut resized = signal(SignalKind::window_change()).doing(ErrorKind::Host, doing)?;
    let feed = feed(input);
    let show = async { tokio::join!(show(app, &mut output, Stream::Out), show(app, &mut errors, Stream::Err)) };
    let follow = async {
        while resized.recv().await.is_some() {
            if let Some(size) = terminal_size() {
                let _ = resize.send(size).await;
            }
        }
    };
    tokio::pin!(feed, show, follow);
    loop {
        tokio::select! {
            _ = &mut show => break,
            () = &mut follow => {}
            () = &mut feed => {
                show.await;
                break;
            }
        }
    }
    let end = ended.await;
    drop(raw);
    match end {
        ExecEnd::Exited(0) => Ok(exit_code::DONE),
        ExecEnd::Exited(status) => Ok(u8::try_from(status.clamp(1, 255)).unwrap_or(exit_code::FAILED)),
        ExecEnd::Broken => {
            Err(Error::new(ErrorKind::Host, doing()).because("the connection was lost, or the pod ended"))
        }
    }
}

/// Columns and rows; `None` if the output is no terminal.
fn terminal_size() -> Option<(u16, u16)> {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(&stdout).ok())??;
    Some((size.ws_col, size.ws_row))
}

/// Passes this program's input on. A thread reads it, which may be left waiting for a key when the other end is gone.
async fn feed(mut input: Box<dyn tokio::io::AsyncWrite + Send + Unpin>) {
    let (into, mut pieces) = mpsc::channel::<Vec<u8>>(8);
    std::thread::spawn(move || {
        let mut buffer = vec![0_u8; BUFFER];
        while let Ok(length @ 1..) = std::io::stdin().lock().read(&mut buffer) {
            if into.blocking_send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    while let Some(piece) = pieces.recv().await {
        if input.write_all(&piece).await.is_err() || input.flush().await.is_err() {
            return;
        }
    }
    let _ = input.shutdown().await;
}

/// Shows what a program writes.
async fn show(app: &App, from: &mut (impl AsyncRead + Unpin), stream: Stream) {
    let mut buffer = vec![0_u8; BUFFER];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if !app.ui.terminal(stream, &buffer[..length]) {
            return;
        }
    }
}

/// The terminal passes every key on, until this is dropped.
struct Raw(Termios);

impl Raw {
    fn begin() -> std::io::Result<Self> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Flush, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}
