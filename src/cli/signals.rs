//! Signals that end a command. Each is listened for from the moment it is asked for, so that none is lost before the wait.

use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C alone.
pub(crate) fn ctrl_c() -> anyhow::Result<Signal> {
    listen(SignalKind::interrupt())
}

/// SIGINT, SIGTERM and SIGHUP.
pub(crate) struct Ends([Signal; 3]);

impl Ends {
    /// Listens for all three.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        Ok(Self([listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?]))
    }

    /// Runs `work` until it is done, or until one of them arrives: then `None`.
    pub(crate) async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.wait() => None,
        }
    }

    /// Forgets what has arrived since the last wait; returns whether anything had.
    pub(crate) async fn forget(&mut self) -> bool {
        let mut had_any = false;
        while tokio::time::timeout(Duration::ZERO, self.wait()).await.is_ok() {
            had_any = true;
        }
        had_any
    }

    /// Waits for the first of them.
    pub(crate) async fn wait(&mut self) {
        let [interrupted, terminated, hung_up] = &mut self.0;
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
            _ = hung_up.recv() => {}
        }
    }
}

fn listen(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("listen for Ctrl-C")
}
