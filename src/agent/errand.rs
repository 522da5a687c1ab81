//! The commands of gpucl that the agent runs: each does what a person's would, in a process of its own.

use std::path::Path;
use std::process::Stdio;

use secrecy::ExposeSecret as _;
use tokio::process::Child;

use super::credential::kept_secrets;
use super::limits::Start;
use super::watcher::log;
use crate::name::ClusterName;
use crate::util::child;
use crate::util::fs::open_append;

/// A command that runs beside the agent.
pub(super) struct Errand {
    child: Child,
    what: &'static str,
}

impl Errand {
    /// Starts one; what it says goes to the agent's log, and its result to the records that it writes.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(
        folder: &Path,
        cluster: &ClusterName,
        start: &Start,
        what: &'static str,
        args: &[&str],
    ) -> std::io::Result<Self> {
        Ok(Self { child: begin(folder, cluster, start, args, &|| Ok(Stdio::null()))?, what })
    }

    /// How it ended; `None` while it runs. An error says that it failed.
    pub(super) fn ended(&mut self) -> Option<Result<(), String>> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) if status.success() => Some(Ok(())),
            Ok(Some(status)) => Some(Err(format!("{} failed ({status}); why is above", self.what))),
            Err(error) => Some(Err(format!("{} failed: {error}", self.what))),
        }
    }

    /// Ends it, as there is no more time.
    pub(super) fn give_up(mut self) {
        let _ = self.child.start_kill();
    }
}

/// Starts `gpucl ARGS --cluster NAME`, with the environment and the working folder of the `up` that started the agent.
///
/// # Errors
/// If it cannot be started.
pub(super) fn begin(
    folder: &Path,
    cluster: &ClusterName,
    start: &Start,
    args: &[&str],
    output: &dyn Fn() -> std::io::Result<Stdio>,
) -> std::io::Result<Child> {
    let errors = open_append(&log(folder))?;
    let command = |program: &Path| {
        let mut command = child::async_command(program);
        command.args(args).args(["--cluster", cluster.as_str()]).env_clear();
        command.envs(&start.environment);
        for (name, secret) in kept_secrets(folder) {
            command.env(name, secret.expose_secret());
        }
        // The socket folder is gone once the user has logged out: then one in /tmp is used.
        let runtime = start.environment.get("XDG_RUNTIME_DIR");
        if runtime.is_some_and(|folder| !Path::new(folder).is_dir()) {
            command.env_remove("XDG_RUNTIME_DIR");
        }
        // It is gpucl itself, as if the user had started it where `up` was.
        if start.here.is_dir() {
            command.current_dir(&start.here);
        }
        command.stdin(Stdio::null()).process_group(0);
        command
    };
    let started = command(&start.program).stdout(output()?).stderr(errors.try_clone()?).spawn();
    // If the program was removed meanwhile, run this process's own executable.
    started.or_else(|_| command(Path::new("/proc/self/exe")).stdout(output()?).stderr(errors.try_clone()?).spawn())
}
