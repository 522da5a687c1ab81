//! A shell in a pod, with this terminal.

use std::io::{IsTerminal as _, Read as _};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::cli::app::App;
use crate::cli::exit_code;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::{ExecEnd, Stream};
use crate::provider::platform::Running;

/// How much is read at once, in bytes.
const BUFFER: usize = 16 * 1024;

/// Follows a program in a pod until it ends; returns its exit code. `size` is that of its terminal, if it has one.
pub(super) async fn run(app: &App, machine: &str, running: Running, size: Option<(u16, u16)>) -> Result<u8> {
    let doing = || format!("open a terminal in {machine}");
    let Running { input, mut output, mut errors, resize, ended } = running;
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

/// Columns and rows; `None` if input or output is no terminal.
pub(super) fn terminal_size() -> Option<(u16, u16)> {
    let stdout = std::io::stdout();
    let is_terminal = stdout.is_terminal() && std::io::stdin().is_terminal();
    let size = is_terminal.then(|| tcgetwinsize(&stdout).ok())??;
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
