//! How commands talk to the agent, and start it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::protocol::{Answer, MESSAGE_LIMIT, Request, is_of_this_user, socket};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::{Key, Scope};
use crate::runtime::native::TAG_VARIABLE;
use crate::util::fs;
use crate::util::process::Identity;
use crate::util::runtime_dir::is_runtime_dir;

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
    /// `Ok(None)` when no agent listens: a stale socket, or none. An error when it listens and does not answer well, and when somebody else
    /// could be who listens: what is asked holds the environment of nodes.
    pub async fn ask(&self, request: &Request) -> Result<Option<Answer>> {
        let doing = || format!("ask the agent of {} ({})", self.scope.cluster, self.socket.display());
        if let Some(folder) = self.socket.parent()
            && !is_runtime_dir(folder)?
        {
            return Ok(None);
        }
        let Ok(stream) = UnixStream::connect(&self.socket).await else { return Ok(None) };
        if !is_of_this_user(&stream) {
            return Err(Error::new(ErrorKind::Host, doing()).because("a process of another user listens there"));
        }
        let talk = async {
            let (read, mut write) = stream.into_split();
            let mut text = serde_json::to_string(request).map_err(std::io::Error::other)?;
            text.push('\n');
            write.write_all(text.as_bytes()).await?;
            let mut line = String::new();
            BufReader::new(read.take(MESSAGE_LIMIT)).read_line(&mut line).await?;
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
            crate::util::runtime_dir::make_runtime_dir(folder)?;
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
        // What lies in somebody else's folder is not ours to remove.
        if !self.socket.parent().is_some_and(|folder| is_runtime_dir(folder).unwrap_or(false)) {
            return;
        }
        let _ = fs_err::remove_file(&self.socket);
        let _ = fs_err::remove_file(self.socket.with_extension("lock"));
        if let Some(folder) = self.socket.parent() {
            let _ = fs_err::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    /// What somebody who listens in an agent's place gets to read; `ask` is to be through before.
    async fn heard(client: &AgentClient, runtime: &Path, mode: u32) -> (Result<Option<Answer>>, String) {
        let folder = client.socket.parent().unwrap().to_owned();
        let _ = fs_err::remove_file(&client.socket);
        let listener = tokio::net::UnixListener::bind(&client.socket).unwrap();
        fs_err::set_permissions(runtime, std::fs::Permissions::from_mode(mode)).unwrap();
        let listening = async {
            let (stream, _) = listener.accept().await.unwrap();
            let (read, mut write) = stream.into_split();
            let mut line = String::new();
            BufReader::new(read).read_line(&mut line).await.unwrap();
            let answer = Answer { v: 1, agent: "somebody".to_owned(), ..Answer::default() };
            write.write_all(format!("{}\n", serde_json::to_string(&answer).unwrap()).as_bytes()).await.unwrap();
            line
        };
        let asked = async { client.ask(&Request::Status).await };
        let told = tokio::select! {
            biased;
            answer = asked => (answer, String::new()),
            line = listening => (Ok(None), line),
        };
        fs_err::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        told
    }

    #[tokio::test]
    async fn an_agent_is_asked_only_in_a_folder_that_is_this_user_s_alone() {
        let above = tempfile::tempdir().unwrap();
        let scope = Scope { owner: "a1b2c3d4".parse().unwrap(), cluster: "t".parse().unwrap() };
        let runtime = above.path().join("run");
        let client = AgentClient::new(&runtime, &scope);
        assert!(client.ask(&Request::Status).await.unwrap().is_none(), "there is no folder yet");
        crate::util::runtime_dir::make_runtime_dir(&runtime).unwrap();
        assert!(client.ask(&Request::Status).await.unwrap().is_none(), "nobody listens yet");
        let (_, line) = heard(&client, &runtime, 0o700).await;
        assert!(line.contains("status"), "in a folder of ours it is asked: {line}");
        for mode in [0o777, 0o770, 0o755, 0o711] {
            let (answer, line) = heard(&client, &runtime, mode).await;
            assert_eq!(line, "", "mode {mode:o}");
            assert!(answer.unwrap_err().to_string().contains("others may enter it"), "mode {mode:o}");
        }
        // A link is whoever's who made it, wherever it leads.
        fs_err::os::unix::fs::symlink(&runtime, above.path().join("link")).unwrap();
        let linked = AgentClient::new(&above.path().join("link"), &scope);
        let (answer, line) = heard(&linked, &runtime, 0o700).await;
        assert_eq!(line, "");
        assert!(answer.unwrap_err().to_string().contains("a link"));
        linked.remove_socket();
        assert!(linked.socket.exists());
        client.remove_socket();
        assert!(!client.socket.exists());
    }
}
