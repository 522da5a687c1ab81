//! Processes of this machine, identified by pid, start time and boot, since pids are reused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read as _;
use std::str::FromStr;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Identifies one process uniquely, across reuse of pids and reboots.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// The process id.
    pub pid: u32,
    /// When it started, in clock ticks since the boot.
    pub start: u64,
    /// The id of the boot that it started in.
    pub boot: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{}", self.pid, self.start, self.boot)
    }
}

impl FromStr for Identity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a process identity");
        let mut parts = text.splitn(3, ':');
        let mut next = || parts.next().ok_or_else(wrong);
        Ok(Self {
            pid: next()?.parse().map_err(|_| wrong())?,
            start: next()?.parse().map_err(|_| wrong())?,
            boot: next()?.to_owned(),
        })
    }
}

impl Identity {
    /// The identity of a running process; `None` if no process has this pid.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = stat(pid)?;
        stat.runs.then(|| Self { pid, start: stat.start, boot: boot_id() })
    }

    /// Whether this same process still runs (a zombie does not).
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Whether it goes on: it is alive, and neither exits nor is about to be killed. A killed process is alive until the
    /// scheduler lets it exit, on a busy machine for a tenth of a second and more.
    pub fn goes_on(&self) -> bool {
        !is_ending(self.pid).unwrap_or(true) && self.is_alive()
    }

    /// Sends a signal to this same process, never to another that has reused its pid; returns whether it was sent.
    pub fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return false };
        // The descriptor pins the process, so the identity is checked only afterwards.
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        self.is_alive() && pidfd_send_signal(&descriptor, signal).is_ok()
    }
}

/// A process with its environment and its command line.
#[derive(Debug, Clone)]
pub struct Process {
    /// The process's identity.
    pub identity: Identity,
    /// The parent's pid.
    pub parent: u32,
    /// The command line, by argument.
    pub command: Vec<String>,
    /// The environment that it was started with.
    pub environment: BTreeMap<String, String>,
}

/// All processes with this variable in their environment. Other users' processes cannot be read and are skipped.
pub fn with_variable(name: &str) -> Vec<Process> {
    let prefix = format!("{name}=");
    let boot = boot_id();
    let mut environ = Vec::with_capacity(64 * 1024);
    let Ok(entries) = fs_err::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        read_whole(&format!("/proc/{pid}/environ"), &mut environ).ok()?;
        // Most processes do not have it: their environment is not parsed.
        if !environ.split(|byte| *byte == 0).any(|pair| pair.starts_with(prefix.as_bytes())) {
            return None;
        }
        let mut environment = BTreeMap::new();
        for pair in environ.split(|byte| *byte == 0) {
            if let Some((name, value)) = String::from_utf8_lossy(pair).split_once('=') {
                environment.insert(name.to_owned(), value.to_owned());
            }
        }
        let stat = stat(pid)?;
        stat.runs.then(|| Process {
            identity: Identity { pid, start: stat.start, boot: boot.clone() },
            parent: stat.parent,
            command: command(pid),
            environment,
        })
    })
    .collect()
}

/// The command line of a process; empty if it is gone.
pub fn command(pid: u32) -> Vec<String> {
    let command = fs_err::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = command.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// All processes visible to this user, by pid.
pub fn table() -> BTreeMap<u32, Stat> {
    let Ok(entries) = fs_err::read_dir("/proc") else { return BTreeMap::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, stat(pid)?))).collect()
}

/// The pids of this process's children; `None` if the kernel does not provide the list.
pub fn children() -> Option<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for task in fs_err::read_dir("/proc/self/task").ok()?.flatten() {
        let list = fs_err::read_to_string(task.path().join("children")).ok()?;
        found.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Some(found)
}

/// The pids of all descendants of these processes.
pub fn below(table: &BTreeMap<u32, Stat>, roots: impl IntoIterator<Item = u32>) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pid, stat) in table {
        children.entry(stat.parent).or_default().push(*pid);
    }
    let (mut found, mut left) = (BTreeSet::new(), roots.into_iter().collect::<Vec<_>>());
    while let Some(parent) = left.pop() {
        left.extend(children.get(&parent).into_iter().flatten().filter(|child| found.insert(**child)));
    }
    found
}

/// Reads a file of `/proc` with few calls: such files report no length, so a usual read would begin with a few
/// bytes.
fn read_whole(path: &str, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    let mut file = fs_err::File::open(path)?;
    let mut length = 0;
    loop {
        bytes.resize(length + 32 * 1024, 0);
        match file.read(&mut bytes[length..])? {
            0 => break,
            more => length += more,
        }
    }
    bytes.truncate(length);
    Ok(())
}

/// A process's entry in `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The parent's pid.
    pub parent: u32,
    /// The session id: the pid of the session's leader.
    pub session: u32,
    /// When it started, in clock ticks since the boot.
    pub start: u64,
    /// It still runs.
    pub runs: bool,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have blanks and parentheses; the fields after the last one are regular (man 5 proc).
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_whitespace().collect();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
        // A process whose first thread has ended shows as a zombie while other threads still run.
        runs: !matches!(*fields.first()?, "Z" | "X") || fields.get(17)?.parse::<u32>().ok()? > 1,
    })
}

/// Whether a process exits, or SIGKILL awaits it; `None` if there is none (man 5 proc, `PF_EXITING` of the kernel).
fn is_ending(pid: u32) -> Option<bool> {
    const EXITING: u64 = 0x4;
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let flags: u64 = stat[stat.rfind(')')? + 1..].split_whitespace().nth(6)?.parse().ok()?;
    let status = fs_err::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let pending = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let kill = 1_u64 << (Signal::KILL.as_raw() - 1);
    Some(flags & EXITING != 0 || (pending("SigPnd:")? | pending("ShdPnd:")?) & kill != 0)
}

/// The time since a process started.
pub fn age(identity: &Identity) -> Option<Duration> {
    let uptime = fs_err::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let ticks = rustix::param::clock_ticks_per_second();
    let seconds = uptime - identity.start as f64 / ticks as f64;
    (seconds >= 0.0).then(|| Duration::from_secs_f64(seconds))
}

/// The id of the current boot; it changes with each restart.
pub fn boot_id() -> String {
    fs_err::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// This machine's host name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The name of the user that this process runs as; the uid if it has no name.
pub fn user_name() -> String {
    let uid = rustix::process::getuid().as_raw().to_string();
    let passwd = fs_err::read_to_string("/etc/passwd").unwrap_or_default();
    passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&uid.as_str()))
        .and_then(|fields| fields.first().map(|name| (*name).to_owned()))
        .unwrap_or(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_number_is_another_process() {
        let me = Identity::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert_eq!(me.to_string().parse::<Identity>().unwrap(), me);
        let stranger = Identity { start: me.start + 1, ..me.clone() };
        assert!(!stranger.is_alive());
        assert!(!stranger.signal(Signal::TERM), "a signal never goes to another process");
        let other_boot = Identity { boot: "other".to_owned(), ..me };
        assert!(!other_boot.is_alive());
    }

    #[test]
    fn a_killed_process_does_not_go_on_from_that_moment() {
        for _ in 0..100 {
            let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
            let identity = Identity::of(child.id()).unwrap();
            assert!(identity.goes_on());
            child.kill().unwrap();
            // It may be alive for a while yet.
            assert!(!identity.goes_on());
            child.wait().unwrap();
            assert!(!identity.goes_on());
        }
    }
}
