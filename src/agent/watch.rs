//! The agent of a cluster's end: it compares clocks every few seconds, and takes the cluster down at the limit.
//!
//! It is a process with no other task. It takes the cluster down by starting `gpucl down`, so that there is only one
//! way to remove a cluster, and retries until that succeeds. Looking at hosts, copying to this machine and extending are
//! commands too, which run beside it: a host that is silent delays no deadline.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rustix::process::Signal;
use tokio::signal::unix::{Signal as Heard, SignalKind, signal};

use super::clock::Clock;
use super::decide::{Act, Facts};
use super::end::Why;
use super::errand::{Errand, begin};
use super::given::GivenEnd;
use super::limits::Limits;
use super::notice::{self, EndedJobs, Parcel, Said};
use super::seen::{GuardsReport, SavedHere};
use super::watcher::{Watcher, lock_file, log, output_file, watcher};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::ClusterName;
use crate::state::{ClusterState, Lock, Paths, Store};
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
/// How long the last copy may take before a cluster that nobody uses is taken down.
const LAST_COPY_MAY_TAKE: Duration = Duration::from_secs(3600);
/// How many notices are begun at once: of many jobs that end together, the others follow.
const NOTICES_AT_ONCE: usize = 4;
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

/// What became of a cluster that nobody used, while it was saved.
enum Ready {
    /// Still nobody does.
    Idle,
    /// Somebody does.
    InUse,
    /// This process was asked to end, or the cluster is gone.
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
    Watch {
        paths,
        cluster,
        folder,
        terminate,
        this,
        known: None,
        limits: None,
        said: String::new(),
        errands: Errands::default(),
        notices: BTreeSet::new(),
    }
    .run()
    .await;
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
    errands: Errands,
    /// The keys of the notices that were begun.
    notices: BTreeSet<String>,
}

/// What runs beside the agent, and when each was last begun.
#[derive(Default)]
struct Errands {
    look: Option<Errand>,
    looked: Option<Timestamp>,
    copy: Option<Errand>,
    copied: Option<Timestamp>,
    save: Option<Errand>,
    saved: Option<Timestamp>,
    extend: Option<Errand>,
    extended: Option<Timestamp>,
}

impl Watch {
    async fn run(mut self) {
        loop {
            if !self.read() {
                say("the cluster is gone or no longer has a deadline");
                return;
            }
            self.hear_errands();
            let act = self.verdict();
            // By a clock that is no earlier: what the end brings with it is said before the cluster is gone.
            self.send_news();
            if let Some(act) = act
                && self.end(&act).await
            {
                return;
            }
            self.begin_errands();
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

    /// What is to be done with the cluster now.
    fn verdict(&self) -> Option<Act> {
        let (limits, known) = (self.limits.as_ref()?, self.known.as_ref()?);
        // Requests without a response count only if no running command can still record the result.
        let asked = worker(&self.paths, &self.cluster).is_none();
        let limit = limits.verdict(known, &Clock::now(), asked).map(Act::Down);
        limit.or_else(|| self.with_facts(|facts| facts.act()).flatten())
    }

    fn with_facts<T>(&self, look: impl FnOnce(&Facts<'_>) -> T) -> Option<T> {
        let (limits, known) = (self.limits.as_ref()?, self.known.as_ref()?);
        let (given, seen, here) =
            (GivenEnd::last(&self.folder), GuardsReport::of(&self.folder), SavedHere::of(&self.folder));
        let Errands { looked, copied, saved, extended, .. } = self.errands;
        Some(look(&Facts {
            limits,
            known,
            given: given.as_ref(),
            seen: seen.as_ref(),
            here: &here,
            now: limits.now(&Clock::now()),
            looked,
            copied,
            saved,
            extended,
        }))
    }

    /// Begins what is due, if the same does not run already.
    fn begin_errands(&mut self) {
        let due = |facts: &Facts<'_>| {
            let looks = facts.next_look().is_some_and(|at| at <= facts.now);
            (facts.now, looks, facts.copies_here(), facts.saves_stopped(), facts.extends())
        };
        let Some((now, looks, copies, saves, extends)) = self.with_facts(due) else { return };
        if looks && self.errands.look.is_none() {
            self.errands.looked = Some(now);
            self.errands.look = self.errand("looking at the hosts", &["agent", "--look-at-end"]);
        }
        if copies && self.errands.copy.is_none() {
            self.errands.copied = Some(now);
            self.errands.copy = self.errand("copying to this machine", &["agent", "--copy-here"]);
        }
        if saves && self.errands.save.is_none() {
            say("its nodes were stopped, and its end is near: saving what they have written");
            self.errands.saved = Some(now);
            self.errands.save = self.errand("saving", &["save"]);
        }
        if extends && self.errands.extend.is_none() {
            self.errands.extended = Some(now);
            self.errands.extend = self.errand("extending the lease", &["agent", "--extend"]);
        }
    }

    fn errand(&mut self, what: &'static str, args: &[&str]) -> Option<Errand> {
        let start = self.limits.as_ref()?.start.clone();
        match Errand::start(&self.folder, &self.cluster, &start, what, args) {
            Ok(errand) => Some(errand),
            Err(error) => {
                self.complain(&format!("{what} failed: {error}"));
                None
            }
        }
    }

    /// Sends the news that is due, each by a process that nobody waits for.
    fn send_news(&mut self) {
        let (Some(route), Some(limits)) = (notice::kept_route(&self.folder), &self.limits) else { return };
        let (jobs, said) = (EndedJobs::of(&self.folder), Said::of(&self.folder));
        let due = self.with_facts(|facts| facts.notices(jobs.as_ref(), &said)).unwrap_or_default();
        let new = due.into_iter().filter(|(key, _)| !self.notices.contains(key)).take(NOTICES_AT_ONCE);
        let mut failed = None;
        for (key, notice) in new.collect::<Vec<_>>() {
            self.notices.insert(key.clone());
            let (route, folder) = (route.clone(), Some(self.folder.clone()));
            let parcel = Parcel { route, folder, key, again: false, notice };
            let start = |program: &Path| {
                let log = open_append(&log(&self.folder))?.into();
                notice::start(program, Some(&limits.start.environment), log, &parcel)
            };
            // If the program was removed meanwhile, this process's own executable sends it.
            let started = start(&limits.start.program).or_else(|_| start(Path::new("/proc/self/exe")));
            failed = started.err().or(failed);
        }
        failed.into_iter().for_each(|error| self.complain(&format!("no news is sent: {error}")));
    }

    /// Takes note of errands that have ended.
    fn hear_errands(&mut self) {
        let Errands { look, copy, save, extend, .. } = &mut self.errands;
        let mut failed = Vec::new();
        for errand in [look, copy, save, extend] {
            if let Some(ended) = errand.as_mut().and_then(Errand::ended) {
                *errand = None;
                failed.extend(ended.err());
            }
        }
        failed.iter().for_each(|error| self.complain(error));
    }

    /// Saves what a cluster that nobody uses has, with the command that a person would use, and looks whether it is still in
    /// nobody's use.
    async fn save_first(&mut self) -> Ready {
        for (what, args) in [("saving", &["save"][..]), ("looking at the hosts", &["agent", "--look-at-end"][..])] {
            let begun = Instant::now();
            let mut errand = self.errand(what, args);
            while let Some(running) = &mut errand {
                match running.ended() {
                    Some(ended) => {
                        if let Err(error) = ended {
                            self.complain(&error);
                        }
                        break;
                    }
                    None if begun.elapsed() > LAST_COPY_MAY_TAKE => {
                        errand.take().into_iter().for_each(Errand::give_up);
                        break;
                    }
                    None => {}
                }
                if self.pause(CHECK_EVERY).await {
                    return Ready::Terminated;
                }
            }
        }
        match self.read() {
            false => Ready::Terminated,
            true if self.verdict().is_none() => Ready::InUse,
            true => Ready::Idle,
        }
    }

    /// Takes the cluster down and retries until it is gone. Returns `false` if it need not end any more.
    async fn end(&mut self, act: &Act) -> bool {
        let (why, args) = match act {
            Act::Down(why) => (why, &["down", "--yes", "--output", "json"][..]),
            Act::Stop(why) => (why, &["stop", "--yes", "--output", "json"][..]),
        };
        let is_idle = matches!(why, Why::Idle(_));
        if is_idle && self.saves() {
            say(&format!("{why}: saving first"));
            match self.save_first().await {
                Ready::Idle => {}
                Ready::InUse => {
                    say("somebody uses it again: it stays up");
                    return false;
                }
                Ready::Terminated => return true,
            }
        }
        let Errands { look, copy, save, extend, .. } = &mut self.errands;
        for errand in [look, copy, save, extend] {
            errand.take().into_iter().for_each(Errand::give_up);
        }
        match act {
            Act::Down(_) => say(&format!("{why}: taking {} down", self.cluster)),
            Act::Stop(_) => say(&format!("{why}: stopping the nodes of {}", self.cluster)),
        }
        (self.this.acts, self.this.why) = (true, Some(why.to_string()));
        let mut pause = FIRST_PAUSE;
        let mut asked_up = None;
        loop {
            self.this.next = None;
            self.this.write(&self.folder);
            let wait = match self.attempt(args).await {
                Attempt::Done if matches!(act, Act::Stop(_)) => {
                    say("done: no node runs");
                    self.acts_no_more();
                    return false;
                }
                Attempt::Done => {
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
            // Who is idle was looked at before the first attempt: a removal that has begun is brought to its end.
            if !is_idle && self.verdict().is_none() {
                say("its limits were changed: it stays up");
                self.acts_no_more();
                return false;
            }
        }
    }

    /// Records that it ends nothing now.
    fn acts_no_more(&mut self) {
        (self.this.acts, self.this.why, self.this.failed, self.this.last_error) = (false, None, 0, None);
        self.this.write(&self.folder);
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

    /// Whether its spec names anything to save.
    fn saves(&self) -> bool {
        let spec = self.known.as_ref().and_then(ClusterState::running_spec);
        spec.and_then(|spec| spec.end.as_ref()).is_some_and(|end| !end.save.is_empty())
    }

    /// Runs `gpucl down`, or `gpucl stop`, once.
    async fn attempt(&mut self, args: &[&str]) -> Attempt {
        let started = match &self.limits {
            Some(limits) => fs_err::File::create(output_file(&self.folder)).and_then(|output| {
                let output = output.into_parts().0;
                begin(&self.folder, &self.cluster, &limits.start, args, &|| output.try_clone().map(Into::into))
            }),
            None => Err(std::io::ErrorKind::NotFound.into()),
        };
        let mut child = match started {
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
