//! The agent of a cluster's limits: it compares clocks every few seconds, and takes the cluster down at the limit.
//!
//! It is a process with no other task. It takes the cluster down by starting `gpucl down`, so that there is only one
//! way to remove a cluster, and retries until that succeeds.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rustix::process::Signal;
use secrecy::ExposeSecret as _;
use tokio::process::Child;
use tokio::signal::unix::{Signal as Heard, SignalKind, signal};

use super::Ended;
use super::clock::Clock;
use super::credential::kept_secrets;
use super::end::Why;
use super::limits::Limits;
use super::watcher::{Watcher, lock_file, log, output_file, watcher};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::state::{ClusterState, Lock, Paths, Store};
use crate::util::child;
use crate::util::fs::{RECORD_LIMIT, open_append, read_tail};
use crate::util::process::{Identity, boot_id, host_name};
use crate::util::when::later;

/// How often the clocks are compared. A single long sleep would be extended by the time that this machine sleeps.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// How long to wait for an earlier agent to release the lock: one that was killed has it until it has exited.
const LOCK_LIMIT: Duration = Duration::from_secs(30);
/// The pause after the first failure; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// The pause while another gpucl works on the cluster.
const LOCKED_PAUSE: Duration = Duration::from_secs(1);
/// How long an `up` may take to finish what it began, before the second signal stops it.
const UP_MAY_FINISH: Duration = Duration::from_secs(30);
/// The exit code of `gpucl down` when another gpucl works on the cluster.
const LOCKED: i32 = 4;
/// The exit code of `gpucl down` when the cluster has no state any more.
const NOT_FOUND: i32 = 6;

/// How an attempt ended.
enum Attempt {
    Done,
    Locked,
    Failed(String),
    Terminated,
}

/// The cluster whose limits are enforced.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The user's folders.
    pub paths: Paths,
    /// The cluster's name.
    pub cluster: ClusterName,
}

/// Enforces the limits of a cluster until the cluster is gone or has no limits.
pub async fn watch(watched: Watched) -> Result<()> {
    let Watched { paths, cluster } = watched;
    let doing = || format!("enforce the deadline of {cluster}");
    // Detach from the terminal of the starting command.
    let _ = rustix::process::setsid();
    let folder = paths.cluster(&cluster);
    let lock = open_append(&lock_file(&folder)).doing(ErrorKind::State, doing)?;
    let begun = Instant::now();
    while lock.try_lock().is_err() {
        // Two concurrent commands have each started an agent.
        if watcher(&folder).is_some() || begun.elapsed() > LOCK_LIMIT {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let terminate = signal(SignalKind::terminate()).doing(ErrorKind::Internal, doing)?;
    let Some(this) = Watcher::this_process() else { return Ok(()) };
    this.write(&folder);
    say(&format!("gpucl {} enforces the deadline of {cluster}", env!("CARGO_PKG_VERSION")));
    Watch { paths, cluster, folder, terminate, this, known: None, limits: None, said: String::new() }.run().await;
    Ok(())
}

struct Watch {
    paths: Paths,
    cluster: ClusterName,
    folder: PathBuf,
    terminate: Heard,
    this: Watcher,
    /// The last state that could be read: a temporary read error must lift no limit.
    known: Option<ClusterState>,
    limits: Option<Limits>,
    /// The last message about a read error.
    said: String,
}

impl Watch {
    async fn run(mut self) {
        loop {
            if !self.read() {
                say("the cluster is gone or no longer has a deadline");
                return;
            }
            if let Some(why) = self.verdict()
                && self.end(&why).await
            {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(CHECK_EVERY) => {}
                _ = self.terminate.recv() => {
                    say("ended; any gpucl command starts it again");
                    return;
                }
            }
        }
    }

    /// Reads the limits and the state; `false` if one of them is gone.
    fn read(&mut self) -> bool {
        match Limits::of(&self.folder) {
            Ok(None) => return false,
            Ok(limits) => self.limits = limits,
            Err(error) => self.complain(&error.to_string()),
        }
        match Store::open(&self.paths, &self.cluster) {
            Ok(None) => return false,
            Ok(Some(store)) => self.known = Some(store.state().clone()),
            Err(error) => self.complain(&error.to_string()),
        }
        true
    }

    /// Logs a repeated message only once.
    fn complain(&mut self, text: &str) {
        if self.said != text {
            say(text);
            text.clone_into(&mut self.said);
        }
    }

    fn verdict(&self) -> Option<Why> {
        let (limits, known) = (self.limits.as_ref()?, self.known.as_ref()?);
        // Requests without a response count only if no running command can still record the result.
        let asked = worker(&self.paths, &self.cluster).is_none();
        limits.verdict(known, &Clock::now(), asked)
    }

    /// Takes the cluster down and retries until it is gone. Returns `false` if it need not end any more.
    async fn end(&mut self, why: &Why) -> bool {
        say(&format!("{why}: taking {} down", self.cluster));
        self.this.acts = true;
        let mut pause = FIRST_PAUSE;
        let mut asked_up = None;
        loop {
            self.this.next = None;
            self.this.write(&self.folder);
            let wait = match self.attempt().await {
                Attempt::Done => {
                    let cost = self.known.as_ref().map(|known| known.spending(Timestamp::now()).so_far);
                    Ended::now(why, &cost.unwrap_or_default()).write(&self.paths, &self.cluster);
                    say("done: nothing of it is left");
                    return true;
                }
                Attempt::Terminated => return true,
                Attempt::Locked => {
                    self.ask_up_to_end(&mut asked_up);
                    LOCKED_PAUSE
                }
                Attempt::Failed(error) => {
                    self.this.failed += 1;
                    say(&format!("attempt {} failed ({error}); again in {} s", self.this.failed, pause.as_secs()));
                    self.this.last_error = Some(error);
                    let wait = pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    wait
                }
            };
            self.this.next = Some(later(Timestamp::now(), SignedDuration::try_from(wait).unwrap_or_default()));
            self.this.write(&self.folder);
            if self.pause(wait).await || !self.read() {
                return true;
            }
            if self.verdict().is_none() {
                say("its limits were changed: it stays up");
                (self.this.acts, self.this.failed, self.this.last_error) = (false, 0, None);
                self.this.write(&self.folder);
                return false;
            }
        }
    }

    /// Waits by the clock that also counts while this machine sleeps. Returns whether a signal asked to end.
    async fn pause(&mut self, time: Duration) -> bool {
        let begun = Clock::now().since_boot_ms;
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        while Clock::now().since_boot_ms - begun < millis {
            tokio::select! {
                () = tokio::time::sleep(CHECK_EVERY.min(time)) => {}
                _ = self.terminate.recv() => return true,
            }
        }
        false
    }

    /// Runs `gpucl down` once.
    async fn attempt(&mut self) -> Attempt {
        let mut child = match self.down() {
            Ok(child) => child,
            Err(error) => return Attempt::Failed(error.to_string()),
        };
        let status = tokio::select! {
            status = child.wait() => status,
            // The child continues on its own.
            _ = self.terminate.recv() => return Attempt::Terminated,
        };
        match status.map(|status| status.code()) {
            Ok(Some(0 | NOT_FOUND)) => Attempt::Done,
            Ok(Some(LOCKED)) => Attempt::Locked,
            Ok(code) => Attempt::Failed(match last_error(&self.folder) {
                Some(error) => format!("failed to {error}"),
                None => code.map_or_else(|| "it was killed".to_owned(), |code| format!("it exited with {code}")),
            }),
            Err(error) => Attempt::Failed(error.to_string()),
        }
    }

    fn down(&self) -> std::io::Result<Child> {
        let limits = self.limits.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        let errors = open_append(&log(&self.folder))?;
        let output = fs_err::File::create(output_file(&self.folder))?.into_parts().0;
        let command = |program: &Path| {
            let mut command = child::async_command(program);
            command.args(["down", "--yes", "--output", "json", "--cluster", self.cluster.as_str()]).env_clear();
            command.envs(&limits.start.environment);
            for (name, secret) in kept_secrets(&self.folder) {
                command.env(name, secret.expose_secret());
            }
            // The socket folder is gone once the user has logged out: then one in /tmp is used.
            let runtime = limits.start.environment.get("XDG_RUNTIME_DIR");
            if runtime.is_some_and(|folder| !Path::new(folder).is_dir()) {
                command.env_remove("XDG_RUNTIME_DIR");
            }
            // It is gpucl itself, as if the user had started it where `up` was.
            if limits.start.here.is_dir() {
                command.current_dir(&limits.start.here);
            }
            command.stdin(Stdio::null()).process_group(0);
            command
        };
        let started = command(&limits.start.program).stdout(output.try_clone()?).stderr(errors.try_clone()?).spawn();
        // If the program was removed meanwhile, run this process's own executable.
        started.or_else(|_| command(Path::new("/proc/self/exe")).stdout(output).stderr(errors).spawn())
    }

    /// Signals an `up` that still works on the cluster at its deadline to stop, as by Ctrl-C; later once more.
    fn ask_up_to_end(&self, asked: &mut Option<Instant>) {
        let Some((identity, verb)) = worker(&self.paths, &self.cluster) else { return };
        let times = match asked {
            None => 1,
            Some(first) if first.elapsed() > UP_MAY_FINISH => 2,
            Some(_) => return,
        };
        if verb == "up" && identity.signal(Signal::TERM) {
            say(&format!("process {} is still bringing it up: asked to stop", identity.pid));
            *asked = Some(if times == 1 { Instant::now() } else { Instant::now() + LONGEST_PAUSE });
        }
    }
}

/// The process that works on a cluster on this machine, and its verb.
fn worker(paths: &Paths, cluster: &ClusterName) -> Option<(Identity, String)> {
    let info = Lock::holder(paths, cluster)?;
    if info.host != host_name() || info.boot != boot_id() {
        return None;
    }
    Some((Identity::of(info.pid)?, info.verb))
}

/// The error of the last `gpucl down`, from the last line of its output.
fn last_error(folder: &Path) -> Option<Error> {
    let text = read_tail(&output_file(folder), RECORD_LIMIT).ok()?;
    let line: serde_json::Value = serde_json::from_str(text.lines().last()?).ok()?;
    (line["type"] == "error").then(|| serde_json::from_value(line).ok())?
}

/// Writes a line to the log, which is stderr.
fn say(text: &str) {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let _ = writeln!(std::io::stderr().lock(), "{now} {text}");
}
