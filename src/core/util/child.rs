//! Child processes on this machine: all are made here.

use std::ffi::OsStr;
use std::process::Command;

/// A program to be run on this machine, in a folder that nobody but root writes to.
///
/// git, ssh, Python, pip, uv and others take configuration and code from the folder that they are started in, and that
/// one may be a stranger's. What belongs to the user, their environment and their home, is as it was. A program of the
/// user's own, which is meant to see the working folder, is given it by the caller with `current_dir`. Every file among
/// the arguments needs an absolute path.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/");
    command
}

/// A command like that of [`command`], to be awaited.
pub fn async_command(program: impl AsRef<OsStr>) -> tokio::process::Command {
    command(program).into()
}
