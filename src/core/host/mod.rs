//! Machines we can run commands on.
//!
//! A host can do one thing: run a POSIX shell program from the standard input of one exec and return its output line by
//! line. Everything else (file delivery, detached programs, following and re-attaching, facts) is built on top of that
//! in
//! [`crate::playbook`], so it works the same on this machine and over SSH.

mod file;
mod lines;
mod local;
mod secrets;
mod ssh;
mod sync;

use std::time::Duration;

use async_trait::async_trait;

pub use file::StageFile;
pub use lines::follow as follow_lines;
pub use local::LocalHost;
pub use secrets::{SECRETS, put_secrets, remove_secrets};
pub use ssh::{
    Connections, Copied, Ended, HostEntry, HostPath, LeftOut, Relay, SshHost, SshTarget, StreamHost, TargetFault,
    Tunnel, Way, converse, download, upload, user_fault,
};

use crate::error::{Error, ErrorKind, Result};
pub use sync::{Differences, End, Excludes, Here, Progress, SyncOptions, Synced, There, compare};

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
    /// A signal ended it, or the connection was lost; the two cannot always be distinguished.
    Broken,
}

/// Callback for each output line of an exec, as it arrives.
pub type OnLine<'a> = &'a mut (dyn for<'line> FnMut(Stream, &'line str) + Send);

/// The account that programs run as on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// Root; with `sudo` when the login user is another.
    Root,
    /// The login user.
    User,
}

/// A machine we can run commands on.
#[async_trait]
pub trait Host: Send + Sync {
    /// The display name, such as `host-0`.
    fn name(&self) -> &str;

    /// The folder on the host for all of gpucl's files: absolute, or `~/…` in the home folder of the account.
    fn home(&self) -> &str;

    /// The lock file that a program holds while it runs. Hosts of several clusters on one machine share it, so that no
    /// two of them change the machine at the same time; `LOCK.reboot` beside it records a requested reboot.
    fn lock(&self) -> String {
        format!("{}/lock", self.home())
    }

    /// How long a reboot of the machine may take; `None` when gpucl must not reboot it.
    fn reboot_limit(&self) -> Option<Duration> {
        None
    }

    /// After a reboot was requested: drops every connection to the machine and waits, for at most `wait`, until it can
    /// be reached again. The caller must check whether it really rebooted.
    async fn rebooted(&self, wait: Duration) -> Result<()> {
        let _ = wait;
        Err(Error::new(ErrorKind::Unsupported, format!("reboot {}", self.name()))
            .because("this machine must not be rebooted"))
    }

    /// Kills the execs left by a gpucl that was killed, on hosts where they outlive it.
    ///
    /// # Errors
    /// When one cannot be killed.
    async fn end_abandoned(&self) -> Result<()> {
        Ok(())
    }

    /// Runs one POSIX shell program in one exec: `sh -s` with the program on its standard input.
    ///
    /// Each output line goes to `on_line` as it arrives. Dropping the future ends the exec, not what it detached.
    ///
    /// # Errors
    /// When the exec cannot be started. How the program ended is in [`ExecEnd`].
    async fn exec(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd>;
}
