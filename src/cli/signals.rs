//! Signals that end a command. Each is listened for from the moment it is asked for, so that none is lost before the wait.

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
