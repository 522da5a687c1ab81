//! This machine, as this user.

use std::path::PathBuf;
use std::process::Stdio;

use async_trait::async_trait;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::lines::follow;
use super::{ExecEnd, Host, OnLine};
use crate::error::{Doing as _, Error, ErrorKind, Result};

/// This machine, with one folder for everything of one host.
#[derive(Debug, Clone)]
pub struct LocalHost {
    name: String,
    home: String,
}

impl LocalHost {
    /// Makes it of its name and its folder.
    pub fn new(name: impl Into<String>, home: PathBuf) -> Result<Self> {
        let home = home.into_os_string().into_string().map_err(|home| {
            Error::new(ErrorKind::Host, format!("use the folder {}", home.display()))
                .because("its path is not UTF-8")
                .hint("set XDG_DATA_HOME to a folder whose path is plain text")
        })?;
        Ok(Self { name: name.into(), home })
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

    async fn exec(&self, program: &str, on_line: OnLine<'_>) -> Result<ExecEnd> {
        let doing = || format!("run a shell program on {}", self.name);
        let mut child = Command::new("/bin/sh")
            .arg("-s")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A Ctrl-C at the terminal is for gpucl to answer, not for the program.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .doing(ErrorKind::Host, doing)?;
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Error::new(ErrorKind::Internal, doing()).because("its pipes are missing"));
        };
        let feed = async move {
            // A program that ends early closes its end; what it has not read does not matter then.
            let _ = stdin.write_all(program.as_bytes()).await;
            drop(stdin);
        };
        tokio::join!(feed, follow(stdout, stderr, on_line));
        let status = child.wait().await.doing(ErrorKind::Host, doing)?;
        Ok(status.code().map_or(ExecEnd::Broken, ExecEnd::Exited))
    }
}
