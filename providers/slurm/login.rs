//! The login machine: one connection, and one shell program for each question.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use super::queue::ENDED;
use crate::error::{Error, ErrorKind, LeftBehind, Result, Status};
use crate::host::{Account, Connections, ExecEnd, Host, HostEntry, LocalHost, Relay, SshTarget, Stream};
use crate::provider::Context;
use crate::render::quote;
use crate::util::digest;

const LIBRARY: &str = include_str!("shell/login.sh");

/// How long the login machine may take to answer by SSH.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// The variables of this machine that Slurm's commands get when it is the login machine.
const KEPT: &[&str] = &["PATH", "HOME", "USER", "LOGNAME", "LANG", "SLURM_CONF", "KRB5CCNAME", "TMPDIR"];

/// Whether a program may have changed something when its answer is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Possible,
}

pub(super) struct LoginMachine {
    target: Option<SshTarget>,
    context: Context,
    connected: OnceCell<Connected>,
}

/// The login machine, connected.
struct Connected {
    host: Arc<dyn Host>,
    /// Those by which it is reached; `None` when it is this machine.
    connections: Option<Connections>,
}

impl LoginMachine {
    /// Connects to nothing yet. Without a target, it is this machine.
    pub(super) fn new(target: Option<SshTarget>, context: Context) -> Self {
        Self { target, context, connected: OnceCell::new() }
    }

    /// How it is named in messages.
    pub(super) fn name(&self) -> &str {
        self.target.as_ref().map_or("this machine", |target| &target.node)
    }

    /// A recorded relay, through the login machine as the settings have it now.
    pub(super) fn corrected(&self, relay: Relay) -> Relay {
        let (Some(before), Some(now)) = (&relay.login, &self.target) else { return relay };
        let seen = before.host_key.clone().filter(|_| before.node == now.node);
        let login = SshTarget { host_key: now.host_key.clone().or(seen), ..now.clone() };
        Relay { login: Some(Box::new(login)), ..relay }
    }

    /// The target for relays, with the host key that was seen: each machine is trusted once.
    pub(super) async fn target(&self) -> Result<Option<SshTarget>> {
        let Some(target) = self.target.clone() else { return Ok(None) };
        let connections = &self.connected().await?.connections;
        let key = connections.as_ref().and_then(|connections| connections.recorded_key(Relay::LOGIN));
        Ok(Some(SshTarget { host_key: target.host_key.clone().or(key), ..target }))
    }

    /// The folder on this machine for what is known of the login machine; its name is short, as sockets need.
    fn folder(&self, target: &SshTarget) -> PathBuf {
        let name = digest::of_json(&(&target.node, &target.user, target.port));
        self.context.cache_dir.join("slurm").join(&name[..12])
    }

    async fn connected(&self) -> Result<&Connected> {
        self.connected.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> Result<Connected> {
        let environment = &self.context.user_environment;
        let Some(target) = &self.target else {
            let kept = KEPT.iter().filter_map(|name| Some((OsString::from(name), environment.variable(name)?.into())));
            let host = LocalHost::new("the login machine", self.context.data_dir.clone(), kept)?;
            return Ok(Connected { host: Arc::new(host), connections: None });
        };
        let (runtime_dir, home) = (self.context.runtime_dir.clone(), environment.home.clone());
        let connections = Connections::new(self.folder(target), runtime_dir, home, self.context.events.clone());
        connections.write(&[HostEntry { names: vec![Relay::LOGIN.to_owned()], target: target.clone() }])?;
        let host = connections.connect(Relay::LOGIN, "~/.gpucl".to_owned(), ANSWERS_WITHIN, std::future::pending());
        let host = host.await.map_err(|error| {
            let error = error.while_doing(format!("log in to {}", target.node));
            error.hint(format!(
                "if it asks for a second factor: keep a connection open yourself, and gpucl uses it: \
                 `ssh -M -S ~/.ssh/%C -N -f {}` with `ControlPath ~/.ssh/%C` in ~/.ssh/config",
                target.node
            ))
        })?;
        Ok(Connected { host: Arc::new(host.by(Account::User)), connections: Some(connections) })
    }

    /// Runs a function of the library and returns the lines that it prints.
    ///
    /// # Errors
    /// When Slurm is not there, a command of it fails, or there is no answer within `limit`.
    pub(super) async fn ask(
        &self,
        doing: &str,
        function: &str,
        variables: &[(&str, &str)],
        effect: Effect,
        limit: Duration,
    ) -> Result<Vec<String>> {
        let mut program = format!("{LIBRARY}ended={}\n", quote(&ENDED.join(" ")));
        for (name, value) in variables {
            program.push_str(&format!("{name}={}\n", quote(value)));
        }
        program.push_str(function);
        // The last line starts it: a program that arrives cut off does nothing. And nothing reads it as input.
        program.push_str("\nmain </dev/null\n");
        let host = &self.connected().await.map_err(|error| error.while_doing(doing))?.host;
        let (mut lines, mut said) = (Vec::new(), Vec::new());
        let mut take = |stream: Stream, line: &str| match stream {
            Stream::Out => lines.push(line.to_owned()),
            Stream::Err => said.push(line.to_owned()),
        };
        let lost = |error: Error| match effect {
            Effect::None => error,
            Effect::Possible => error.left(LeftBehind::Unknown),
        };
        let ran = tokio::time::timeout(limit, host.exec(&program, &mut take)).await;
        let end = match ran {
            Ok(end) => end.map_err(|error| lost(error.while_doing(doing)))?,
            Err(_) => {
                return Err(lost(
                    Error::new(ErrorKind::Provider, doing)
                        .because(format!("{} did not answer within {} s", self.name(), limit.as_secs()))
                        .status(Status::Temporary),
                ));
            }
        };
        let failure = |why: String| Error::new(ErrorKind::Provider, doing).because(why);
        if lines.iter().any(|line| line == "::no-slurm") {
            return Err(failure(format!(
                "{} has no Slurm: `squeue` is not found, in a login shell either",
                self.name()
            ))
            .hint("`provider: {host: …}` names the machine that you log in to for `sbatch`"));
        }
        if let Some(why) = lines.iter().find_map(|line| line.strip_prefix("::failed ")) {
            return Err(super::refusal::error(doing, why));
        }
        if end != ExecEnd::Exited(0) {
            let why = said.last().cloned().unwrap_or_else(|| "its program was cut off".to_owned());
            return Err(lost(failure(why).status(Status::Temporary)));
        }
        Ok(lines)
    }
}
