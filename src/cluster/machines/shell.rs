//! A shell on a machine, or a command in its place.

use std::process::Command;

use super::pod::PodHost;
use super::{Kind, Machines};
use crate::error::{Error, ErrorKind, Result};
use crate::host::Host as _;
use crate::provider::platform::Running;
use crate::util::child;

/// The shell of a pod: the best that the image has.
const OF_A_POD: [&str; 3] = ["sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"];

/// A shell, or a command in its place.
pub enum Shell {
    /// A program of this machine, to be put in the place of this one.
    Program {
        /// It.
        command: Command,
        /// The error when it cannot be started.
        failure: Error,
    },
    /// A program that runs in a pod.
    Attached {
        /// The pod's name.
        machine: String,
        /// The program.
        running: Running,
    },
}

impl Machines {
    /// A shell on a machine, the head's by default; without words for a command an interactive one. A pod gives it a
    /// terminal of so many columns and rows.
    ///
    /// # Errors
    /// If there is no machine of that name, the cluster does not run, or the pod does not start it.
    pub async fn shell(&self, name: Option<&str>, command: &[String], terminal: Option<(u16, u16)>) -> Result<Shell> {
        let program = |command, doing: &str, hint: &str| {
            Ok(Shell::Program { command, failure: Error::new(ErrorKind::Host, doing).hint(hint) })
        };
        match &self.0 {
            Kind::Here(here) => {
                let mut shell = match command {
                    [] => child::command(here.user.variable("SHELL").unwrap_or("/bin/sh")),
                    [first, rest @ ..] => {
                        let mut command = child::command(first);
                        command.args(rest);
                        command
                    }
                };
                // The user's own shell or command, as if it were started from the one in front of them.
                shell.current_dir(&here.user.here);
                for (name, value) in here.settings()? {
                    match value {
                        Some(value) => shell.env(name, value),
                        None => shell.env_remove(name),
                    };
                }
                program(shell, "start a shell", "set SHELL to your shell")
            }
            Kind::Ssh(remote) => {
                let ssh = remote.connections.program(remote.host_or_head(name)?.name(), command)?;
                program(ssh, "run `ssh`", "sudo apt-get install openssh-client")
            }
            Kind::Pods(pods) => {
                let pod = PodHost::new(pods, &pods.named(name.unwrap_or("head")).await?);
                let words: Vec<&str> = command.iter().map(String::as_str).collect();
                let words = if words.is_empty() { OF_A_POD.as_slice() } else { words.as_slice() };
                Ok(Shell::Attached { machine: pod.name().to_owned(), running: pod.start(words, terminal).await? })
            }
        }
    }

    /// Forgets the recorded key of a host, the head's by default; returns the host's name, and whether there was a key.
    ///
    /// # Errors
    /// If it is not reached by SSH, or its key was not recorded.
    pub fn forget_host_key(&self, name: Option<&str>) -> Result<(&str, bool)> {
        let none = |why: &str| Err(Error::new(ErrorKind::Unsupported, "forget a host key").because(why));
        match &self.0 {
            Kind::Here(_) => none("the cluster runs on this machine"),
            Kind::Pods(_) => none("the cluster's pods are reached through their platform, without SSH"),
            Kind::Ssh(remote) => {
                let host = remote.host_or_head(name)?;
                Ok((host.name(), remote.connections.forget_host_key(host.name())?))
            }
        }
    }
}
