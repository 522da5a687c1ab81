//! Machines we can run commands on.
//!
//! A host can do one thing: take a POSIX shell program on the standard input of one exec, and hand back what it prints,
//! line by line. Everything else (delivery of files, detached programs, following and re-attaching, facts) is built on that
//! one thing in [`crate::playbook`], so that it works the same on this machine and through SSH.

mod file;
mod lines;
mod local;
mod ssh;

use std::time::Duration;

use async_trait::async_trait;

pub use file::StageFile;
pub use local::LocalHost;
pub use ssh::{
    Connections, Copied, HostEntry, LeftOut, OnBytes, SshHost, SshTarget, TargetFault, Tunnel, Way, user_fault,
};

use crate::error::{Error, ErrorKind, Result};

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

/// As whom programs run on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// As root: by `sudo`, where another user is logged in as.
    Root,
    /// As the user that is logged in as.
    User,
}

/// A machine we can run commands on.
#[async_trait]
pub trait Host: Send + Sync {
    /// What a person calls it.
    fn name(&self) -> &str;

    /// The folder on the host that holds everything of ours: absolute, or `~/…` in the home folder of who runs it.
    fn home(&self) -> &str;

    /// The file on the host whose lock a program holds while it runs. Hosts of several clusters on one machine share one, so
    /// that no two of them change the machine at the same time; `LOCK.reboot` beside it tells of a reboot that was asked for.
    fn lock(&self) -> String {
        format!("{}/lock", self.home())
    }

    /// How long the machine may take to start anew; none when it must not be started anew by gpucl.
    fn reboot_limit(&self) -> Option<Duration> {
        None
    }

    /// The machine was told to start anew: lets go of every connection to it and waits, at most so long, until it can be
    /// reached again. Whether it really started anew is the caller's to find out.
    async fn rebooted(&self, wait: Duration) -> Result<()> {
        let _ = wait;
        Err(Error::new(ErrorKind::Unsupported, format!("start {} anew", self.name()))
            .because("this machine must not be started anew by gpucl"))
    }

    /// Ends the execs of programs whose gpucl was killed, where those outlive it.
    ///
    /// # Errors
    /// When one cannot be ended.
    async fn end_abandoned(&self) -> Result<()> {
        Ok(())
    }

    /// Runs one POSIX shell program by one exec: `sh -s` with the program on its standard input.
    ///
    /// Each line of output goes to `on_line` as it comes. Dropping the future ends the exec, not what it detached.
    ///
    /// # Errors
    /// When the exec could not be begun at all. How the program ended is in [`ExecEnd`].
    async fn exec(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd>;
}
