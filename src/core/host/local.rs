//! The local machine as a host, with programs run as the current user.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::{Receiver, Sender};

use super::lines::follow;
use super::{Ended, ExecEnd, Host, HostPath, OnLine, StreamHost, converse};
use crate::error::{Doing as _, Error, ErrorKind, LeftBehind, Result};
use crate::util::child;
use crate::util::process::{Identity, with_variable};

/// Variable that names the gpucl that started a program, and the host's folder: `PID:START:BOOT FOLDER`. Children
/// inherit it.
const STARTED_BY: &str = "GPUCL_EXEC";
/// How long a killed process may take to disappear.
const AFTER_KILL: Duration = Duration::from_secs(10);

/// This machine, with one folder for all files of one host.
#[derive(Debug, Clone)]
pub struct LocalHost {
    name: String,
    home: String,
    environment: Vec<(OsString, OsString)>,
}

impl LocalHost {
    /// Creates it from its name, its folder, and the complete environment of the programs on it.
    pub fn new(
        name: impl Into<String>,
        home: PathBuf,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self> {
        let home = home.into_os_string().into_string().map_err(|home| {
            Error::new(ErrorKind::Host, format!("use the folder {}", home.display()))
                .because("its path is not UTF-8")
                .hint("set XDG_DATA_HOME to a folder whose path is plain text")
        })?;
        Ok(Self { name: name.into(), home, environment: environment.into_iter().collect() })
    }

    /// The processes of programs whose gpucl was killed: nobody waits for them, and some would run for another minute.
    pub fn abandoned(&self) -> Vec<Identity> {
        let is_abandoned = |value: &str| {
            value.split_once(' ').is_some_and(|(starter, home)| {
                home == self.home && starter.parse::<Identity>().is_ok_and(|starter| !starter.is_alive())
            })
        };
        with_variable(STARTED_BY)
            .into_iter()
            .filter(|process| process.environment.get(STARTED_BY).is_some_and(|value| is_abandoned(value)))
            .map(|process| process.identity)
            .collect()
    }

    /// Kills them until none is left.
    async fn end_all_abandoned(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let left = self.abandoned();
            if left.is_empty() {
                return Ok(());
            }
            for process in &left {
                process.signal(Signal::KILL);
            }
            if begun.elapsed() > AFTER_KILL {
                let left = left.iter().map(|process| format!("process {}", process.pid)).collect();
                return Err(Error::new(ErrorKind::LeftBehind, format!("end the programs started on {}", self.name))
                    .because("some are still running ten seconds after SIGKILL")
                    .left(LeftBehind::Remaining(left)));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts a program with this host's environment and pipes.
    fn start(&self, program: &mut Command) -> Result<(Child, ChildStdin, ChildStdout, ChildStderr)> {
        let mut child = program
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env(STARTED_BY, format!("{} {}", me(), self.home))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C at the terminal is for gpucl, not for the program.
            .process_group(0)
            .spawn()
            .doing(ErrorKind::Host, || self.doing())?;
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => Ok((child, stdin, stdout, stderr)),
            _ => Err(Error::new(ErrorKind::Internal, self.doing()).because("its pipes are missing")),
        }
    }

    fn doing(&self) -> String {
        format!("run a shell program on {}", self.name)
    }

    /// The user's home folder.
    pub fn login_home(&self) -> Option<&Path> {
        let home = self.environment.iter().find(|(name, _)| name == "HOME").map(|(_, home)| Path::new(home));
        home.filter(|home| home.is_absolute())
    }
}

#[async_trait]
impl Host for LocalHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn home(&self) -> &str {
        &self.home
    }

    async fn end_abandoned(&self) -> Result<()> {
        self.end_all_abandoned().await
    }

    async fn exec(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        let (mut child, mut stdin, stdout, stderr) =
            self.start(child::async_command("/bin/sh").arg("-s").kill_on_drop(true))?;
        let feed = async move {
            // A program that ends early closes its end; the unread rest does not matter then.
            let _ = stdin.write_all(program.as_bytes()).await;
            drop(stdin);
        };
        tokio::join!(feed, follow(stdout, stderr, on_line));
        let status = child.wait().await.doing(ErrorKind::Host, || self.doing())?;
        Ok(status.code().map_or(ExecEnd::Broken, ExecEnd::Exited))
    }
}

#[async_trait]
impl StreamHost for LocalHost {
    fn machine(&self) -> &str {
        &self.name
    }

    fn account(&self) -> Option<&str> {
        None
    }

    async fn run(
        &self,
        program: &[u8],
        at: HostPath<'_>,
        input: Receiver<Vec<u8>>,
        output: Sender<Vec<u8>>,
    ) -> Result<Ended> {
        // When this is dropped it ends with its input or output, and removes what it began.
        let mut shell = child::async_command("/bin/sh");
        shell.arg("-c").arg(at.command(program.len()));
        if let Some(home) = self.login_home() {
            shell.current_dir(home);
        }
        let (mut child, stdin, stdout, stderr) = self.start(&mut shell)?;
        let said = converse(program, input, output, stdin, std::future::ready(stdout), stderr).await;
        let status = child.wait().await.doing(ErrorKind::Host, || self.doing())?;
        Ok(Ended { code: status.code(), said })
    }
}

/// The identity of this process, as text.
fn me() -> String {
    Identity::of(std::process::id()).map(|me| me.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_programs_of_a_killed_gpucl_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let host = LocalHost::new("host-0", folder.path().to_owned(), std::env::vars_os()).unwrap();
        let home = folder.path().display().to_string();
        let dead = Identity { pid: 1, start: 1, boot: crate::util::process::boot_id() };
        let sleep = |value: String| {
            let mut command = tokio::process::Command::new("sh");
            // Its child has the mark as well.
            command.args(["-c", "sleep 60; true"]).env(STARTED_BY, value).kill_on_drop(true).spawn().unwrap()
        };
        let mut abandoned = sleep(format!("{dead} {home}"));
        let (mut own, mut other) = (sleep(format!("{} {home}", me())), sleep(format!("{dead} {home}/other")));
        let begun = Instant::now();
        while host.abandoned().len() < 2 && begun.elapsed() < AFTER_KILL {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(host.abandoned().len(), 2, "the shell and its child");
        host.end_abandoned().await.unwrap();
        assert!(!abandoned.wait().await.unwrap().success());
        assert!(own.try_wait().unwrap().is_none() && other.try_wait().unwrap().is_none());
        // Only the mark identifies their children.
        for mut child in [own, other] {
            for process in with_variable(STARTED_BY).iter().filter(|process| Some(process.parent) == child.id()) {
                process.identity.signal(Signal::KILL);
            }
            child.wait().await.unwrap();
        }
    }
}
