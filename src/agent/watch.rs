//! What looks after a cluster's limits: it compares clocks every few seconds, and takes the cluster down when it is to end.
//!
//! It is a process of its own, in which nothing else goes on. What takes the cluster down is a `gpucl down` that it starts, so that
//! there is one way in which a cluster is removed; it starts it again until it succeeded.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rustix::process::Signal;
use secrecy::ExposeSecret as _;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Heard, SignalKind, signal};

use super::Ended;
use super::deadline::{Clock, Limits, Watcher, Why, kept_secrets, lock_file, log, output_file};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::state::{ClusterState, Lock, Paths, Store};
use crate::util::fs::{RECORD_LIMIT, open_append, read_tail};
use crate::util::process::{Identity, boot_id, host_name};
use crate::util::when::later;

/// How often the clocks are compared. One long sleep would be as long again after this machine slept.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long an earlier one may take to be gone altogether.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
/// After the first failure; then twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// While another gpucl works on the cluster.
const LOCKED_PAUSE: Duration = Duration::from_secs(1);
/// How long an `up` may finish what it began, before it is told to stop now.
const UP_MAY_FINISH: Duration = Duration::from_secs(30);
/// What `gpucl down` exits with when another gpucl works on the cluster.
const LOCKED: i32 = 4;
/// And when nothing is known of the cluster any more.
const NOT_FOUND: i32 = 6;

/// How an attempt ended.
enum Attempt {
    Done,
    Locked,
    Failed(String),
    Told,
}

/// The cluster whose limits are looked after.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The user's folders.
    pub paths: Paths,
    /// Its name.
    pub cluster: ClusterName,
}

/// Looks after the limits of a cluster until it is gone, or they are.
pub async fn watch(watched: Watched) -> Result<()> {
    let Watched { paths, cluster } = watched;
    let doing = || format!("look after the deadline of {cluster}");
    // Away from the terminal of whoever started it.
    let _ = rustix::process::setsid();
    let folder = paths.cluster(&cluster);
    let lock = open_append(&lock_file(&folder)).doing(ErrorKind::State, doing)?;
    let begun = Instant::now();
    while lock.try_lock().is_err() {
        if begun.elapsed() > LOCK_LIMIT {
            // Two commands at once have each started one.
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let terminate = signal(SignalKind::terminate()).doing(ErrorKind::Internal, doing)?;
    let Some(this) = Watcher::this_process() else { return Ok(()) };
    this.write(&folder);
    say(&format!("gpucl {} looks after the deadline of {cluster}", env!("CARGO_PKG_VERSION")));
    Watch { paths, cluster, folder, terminate, this, known: None, limits: None, said: String::new() }.run().await;
    Ok(())
}

struct Watch {
    paths: Paths,
    cluster: ClusterName,
    folder: PathBuf,
    terminate: Heard,
    this: Watcher,
    /// The last that could be read: a disk that is full for a moment lifts no limit.
    known: Option<ClusterState>,
    limits: Option<Limits>,
    /// The last trouble in reading.
    said: String,
}

impl Watch {
    async fn run(mut self) {
        loop {
            if !self.read() {
                say("the cluster is gone, or has no deadline any more");
                return;
            }
            if let Some(why) = self.verdict()
                && self.end(&why).await
            {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                _ = self.terminate.recv() => {
                    say("ended; any gpucl command starts it again");
                    return;
                }
            }
        }
    }

    /// Reads what there is; `false` when there is nothing to look after any more.
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

    /// Says what goes on and on once.
    fn complain(&mut self, text: &str) {
        if self.said != text {
            say(text);
            text.clone_into(&mut self.said);
        }
    }

    fn verdict(&self) -> Option<Why> {
        let (limits, known) = (self.limits.as_ref()?, self.known.as_ref()?);
        // While a command works on it, what it has asked for is its to tell; one that died tells nothing.
        let asked = worker(&self.paths, &self.cluster).is_none();
        limits.verdict(known, &Clock::now(), asked)
    }

    /// Takes the cluster down; tries until it is gone. Hands back `false` when it need not end any more.
    async fn end(&mut self, why: &Why) -> bool {
        say(&format!("{why}: taking {} down", self.cluster));
        self.this.acts = true;
        let mut pause = FIRST_PAUSE;
        let mut told_up = None;
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
                Attempt::Told => return true,
                Attempt::Locked => {
                    self.ask_up_to_end(&mut told_up);
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
                say("its limits were changed: it goes on");
                (self.this.acts, self.this.failed, self.this.last_error) = (false, 0, None);
                self.this.write(&self.folder);
                return false;
            }
        }
    }

    /// Waits so long by the clock that counts while this machine sleeps; hands back whether it was told to end.
    async fn pause(&mut self, time: Duration) -> bool {
        let begun = Clock::now().since_boot_ms;
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        while Clock::now().since_boot_ms - begun < millis {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY.min(time)) => {}
                _ = self.terminate.recv() => return true,
            }
        }
        false
    }

    /// One `gpucl down`.
    async fn attempt(&mut self) -> Attempt {
        let mut child = match self.down() {
            Ok(child) => child,
            Err(error) => return Attempt::Failed(error.to_string()),
        };
        let status = tokio::select! {
            status = child.wait() => status,
            // It goes on by itself, and whoever ended this has its reason.
            _ = self.terminate.recv() => return Attempt::Told,
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
        let told = fs_err::File::create(output_file(&self.folder))?.into_parts().0;
        let command = |program: &Path| {
            let mut command = Command::new(program);
            command.args(["down", "--yes", "--output", "json", "--cluster", self.cluster.as_str()]).env_clear();
            command.envs(&limits.start.environment);
            for (name, secret) in kept_secrets(&self.folder) {
                command.env(name, secret.expose_secret());
            }
            // The folder for sockets of somebody who has logged out is gone: then there is one in /tmp.
            let runtime = limits.start.environment.get("XDG_RUNTIME_DIR");
            if runtime.is_some_and(|folder| !Path::new(folder).is_dir()) {
                command.env_remove("XDG_RUNTIME_DIR");
            }
            let here = if limits.start.here.is_dir() { limits.start.here.as_path() } else { Path::new("/") };
            command.current_dir(here).stdin(Stdio::null()).process_group(0);
            command
        };
        let started = command(&limits.start.program).stdout(told.try_clone()?).stderr(errors.try_clone()?).spawn();
        // The program was replaced or removed meanwhile: this very one is still there.
        started.or_else(|_| command(Path::new("/proc/self/exe")).stdout(told).stderr(errors).spawn())
    }

    /// An `up` that still works on the cluster at its deadline is told to stop, as by Ctrl-C; later once more.
    fn ask_up_to_end(&self, told: &mut Option<Instant>) {
        let Some((identity, verb)) = worker(&self.paths, &self.cluster) else { return };
        let times = match told {
            None => 1,
            Some(first) if first.elapsed() > UP_MAY_FINISH => 2,
            Some(_) => return,
        };
        if verb == "up" && identity.signal(Signal::TERM) {
            say(&format!("process {} still brings it up: told to stop", identity.pid));
            *told = Some(if times == 1 { Instant::now() } else { Instant::now() + LONGEST_PAUSE });
        }
    }
}

/// The process that works on a cluster now, and its verb.
fn worker(paths: &Paths, cluster: &ClusterName) -> Option<(Identity, String)> {
    let info = Lock::holder(paths, cluster)?;
    if info.host != host_name() || info.boot != boot_id() {
        return None;
    }
    Some((Identity::of(info.pid)?, info.verb))
}

/// The error that the last `gpucl down` ended with: its last line.
fn last_error(folder: &Path) -> Option<Error> {
    let text = read_tail(&output_file(folder), RECORD_LIMIT).ok()?;
    let line: serde_json::Value = serde_json::from_str(text.lines().last()?).ok()?;
    (line["type"] == "error").then(|| serde_json::from_value(line).ok())?
}

/// Says something in the log, which is its standard error.
fn say(text: &str) {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let _ = writeln!(std::io::stderr().lock(), "{now} {text}");
}
