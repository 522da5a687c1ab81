//! How commands talk to the agent, and start it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::protocol::{Answer, Request, socket};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::{Key, Scope};
use crate::runtime::native::TAG_VARIABLE;
use crate::util::fs;
use crate::util::process::Identity;

/// How long the agent may take for an answer; it never does anything slow before it answers.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How long the agent may take to listen.
const START_LIMIT: Duration = Duration::from_secs(10);

/// What an agent is started with.
#[derive(Debug, Clone)]
pub struct AgentStart {
    /// The program: gpucl itself.
    pub program: PathBuf,
    /// The environment that it and its nodes may have: nothing that a node does not need.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it writes what it has to say.
    pub log: PathBuf,
}

/// Talks to one cluster's agent.
#[derive(Debug, Clone)]
pub struct AgentClient {
    scope: Scope,
    socket: PathBuf,
}

impl AgentClient {
    /// Makes it; no connection is opened before the first question.
    pub fn new(runtime_dir: &std::path::Path, scope: &Scope) -> Self {
        Self { scope: scope.clone(), socket: socket(runtime_dir, scope) }
    }

    /// Asks.
    ///
    /// # Errors
    /// `Ok(None)` when no agent listens: a stale socket, or none. An error when it listens and does not answer well.
    pub async fn ask(&self, request: &Request) -> Result<Option<Answer>> {
        let Ok(stream) = UnixStream::connect(&self.socket).await else { return Ok(None) };
        let doing = || format!("ask the agent of {} ({})", self.scope.cluster, self.socket.display());
        let talk = async {
            let (read, mut write) = stream.into_split();
            let mut text = serde_json::to_string(request).map_err(std::io::Error::other)?;
            text.push('\n');
            write.write_all(text.as_bytes()).await?;
            let mut line = String::new();
            BufReader::new(read).read_line(&mut line).await?;
            serde_json::from_str::<Answer>(&line).map_err(std::io::Error::other)
        };
        let answer = match tokio::time::timeout(ANSWER_LIMIT, talk).await {
            Ok(answer) => answer.doing(ErrorKind::Host, doing)?,
            Err(_) => {
                return Err(Error::new(ErrorKind::Timeout, doing())
                    .because(format!("it did not answer within {} seconds", ANSWER_LIMIT.as_secs())));
            }
        };
        match answer.error {
            Some(error) => Err(Error::new(ErrorKind::Host, doing()).because(error)),
            None => Ok(Some(answer)),
        }
    }

    /// Starts an agent; hands back the identity of its process once it listens.
    pub async fn start(&self, start: &AgentStart) -> Result<Identity> {
        let doing = || format!("start the agent of {}", self.scope.cluster);
        if let Some(folder) = self.socket.parent() {
            crate::state::make_runtime_dir(folder)?;
        }
        let log = fs::open_append(&start.log).doing(ErrorKind::Host, doing)?;
        let errors = log.try_clone().doing(ErrorKind::Host, doing)?;
        let mut child = tokio::process::Command::new(&start.program)
            .args(["agent", "--cluster", self.scope.cluster.as_str()])
            .env_clear()
            .envs(start.environment.iter().cloned())
            .env(TAG_VARIABLE, self.scope.tag(&Key::agent()).to_string())
            .env("GPUCL_DIGEST", crate::engine::agent_digest())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .current_dir("/")
            .spawn()
            .doing(ErrorKind::Host, doing)?;
        let pid = child.id().unwrap_or_default();
        let begin = Instant::now();
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                let log = fs::read_tail(&start.log, fs::RECORD_LIMIT).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(5).collect();
                let last: Vec<&str> = last.into_iter().rev().collect();
                return Err(Error::new(ErrorKind::Host, doing())
                    .because(format!("it ended at once ({status})"))
                    .because(last.join("\n"))
                    .hint(format!("its log is {}", start.log.display())));
            }
            if let (true, Some(identity)) =
                (self.ask(&Request::Status).await.ok().flatten().is_some(), Identity::of(pid))
            {
                return Ok(identity);
            }
            if begin.elapsed() > START_LIMIT {
                let _ = child.start_kill();
                return Err(Error::new(ErrorKind::Timeout, doing())
                    .because(format!("it did not listen within {} seconds", START_LIMIT.as_secs()))
                    .hint(format!("its log is {}", start.log.display())));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Removes the socket of an agent that is gone.
    pub fn remove_socket(&self) {
        let _ = fs_err::remove_file(&self.socket);
        let _ = fs_err::remove_file(self.socket.with_extension("lock"));
        if let Some(folder) = self.socket.parent() {
            let _ = fs_err::remove_dir(folder);
        }
    }
}
