//! Machines we can run commands on.
//!
//! A host can do one thing: take a POSIX shell program on the standard input of one exec, and hand back what it prints,
//! line by line. Everything else (delivery of files, detached programs, following and re-attaching, facts) is built on that
//! one thing in [`crate::playbook`], so that it works the same on this machine and through SSH.

mod lines;
mod local;
mod ssh;

use async_trait::async_trait;

pub use local::LocalHost;
pub use ssh::{Connections, HostEntry, OnBytes, SshHost, SshTarget};

use crate::error::Result;

/// Where a line of a program's output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// How an exec ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecEnd {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it, or the connection was lost; which of them cannot always be told.
    Broken,
}

/// What takes the lines of an exec as they come.
pub type OnLine<'a> = &'a mut (dyn for<'line> FnMut(Stream, &'line str) + Send);

/// A machine we can run commands on.
#[async_trait]
pub trait Host: Send + Sync {
    /// What a person calls it.
    fn name(&self) -> &str;

    /// The folder on the host that holds everything of ours, absolute.
    fn home(&self) -> &str;

    /// Runs one POSIX shell program by one exec: `sh -s` with the program on its standard input.
    ///
    /// Each line of output goes to `on_line` as it comes. Dropping the future ends the exec, not what it detached.
    ///
    /// # Errors
    /// When the exec could not be begun at all. How the program ended is in [`ExecEnd`].
    async fn exec(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd>;
}
