//! Lambda's rate limits: one call a second and one launch in 12 s, for all gpucl processes of this user together.
//!
//! They share a file with the time of the next allowed call. It is named by a digest of the account, and contains only
//! times. A call takes its turn under the file's lock, and waits for the turn without it.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::util::digest;
use crate::util::fs::create_private_dir;

/// The interval between calls. Lambda counts arrivals, so it is a little more than a second for jitter on the way.
const CALL: Duration = Duration::from_millis(1050);
/// The interval between launches.
const LAUNCH: Duration = Duration::from_millis(12_150);
/// The maximum transit time of a call: a new connection takes some round trips.
const ON_THE_WAY: Duration = Duration::from_millis(300);
/// The furthest plausible turn; a later one means that the clock was put back since.
const FURTHEST: Duration = Duration::from_secs(10 * 60);

/// The kind of call that a turn is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Any call.
    Call,
    /// A launch.
    Launch,
}

/// The shared rate limiter of an account.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    file: PathBuf,
    factor: f64,
}

/// The file's content; all times in milliseconds since 1970.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Turns {
    /// The earliest time of the next call other than a launch.
    call: u64,
    /// The scheduled time of the last launch, past or future.
    launch: u64,
    /// No launch before this time.
    no_launch: u64,
    /// The actual time of the last call, including launches; may be later than its turn.
    called: u64,
    /// The actual time of the last launch.
    launched: u64,
}

impl Pace {
    /// The pace of an account. `factor` is 1, or less for a fast stand-in.
    pub(crate) fn new(folder: &Path, endpoint: &str, key: &SecretString, factor: f64) -> Self {
        let name = digest::of_json(&("lambda", endpoint, key.expose_secret()));
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
        Self { file: folder.join("pace").join(format!("lambda-{name}")), factor }
    }

    /// Scales a duration by the factor.
    pub(crate) fn scaled(&self, time: Duration) -> Duration {
        time.mul_f64(self.factor)
    }

    /// Waits for a turn, and returns its time. Safe to drop while waiting: that only leaves a gap.
    pub(crate) async fn turn(&self, turn: Turn) -> u64 {
        loop {
            let now = now();
            let taken = self.with_turns(|turns| turns.take(turn, now, self.millis(CALL), self.millis(LAUNCH)));
            match taken {
                // Without the file other processes are unknown: wait as if a call had just been made.
                Err(_) => {
                    tokio::time::sleep(self.scaled(if turn == Turn::Call { CALL } else { LAUNCH })).await;
                    return self::now();
                }
                Ok(Taken::At(at)) => {
                    tokio::time::sleep(Duration::from_millis(at.saturating_sub(now))).await;
                    return self.come(turn).await;
                }
                Ok(Taken::AskAgainAt(at)) => {
                    tokio::time::sleep(Duration::from_millis(at.saturating_sub(now).max(1))).await;
                }
            }
        }
    }

    /// Uses a turn whose time has come; waits a little longer if the call before it was late.
    async fn come(&self, turn: Turn) -> u64 {
        let wait = || self.with_turns(|turns| turns.come(turn, now(), self.millis(CALL), self.millis(LAUNCH)));
        while let Ok(Err(wait)) = wait() {
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        now()
    }

    /// Records that the call made at `called` was answered now: it may have arrived late, and the interval counts
    /// from its arrival.
    pub(crate) fn answered(&self, called: u64) {
        let arrived = now().min(called + self.millis(ON_THE_WAY));
        let _ = self.with_turns(|turns| turns.called = turns.called.max(arrived));
    }

    /// Blocks all calls for this time, after a 429.
    pub(crate) fn hold(&self, turn: Turn, time: Duration) {
        let until = now() + u64::try_from(time.as_millis()).unwrap_or(0);
        let _ = self.with_turns(|turns| {
            turns.call = turns.call.max(until);
            if turn == Turn::Launch {
                turns.no_launch = turns.no_launch.max(until);
            }
        });
    }

    /// How long to pause after a 429 without `Retry-After`.
    pub(crate) fn penalty(&self, turn: Turn) -> Duration {
        match turn {
            Turn::Call => self.scaled(CALL * 3),
            Turn::Launch => self.scaled(LAUNCH),
        }
    }

    fn millis(&self, time: Duration) -> u64 {
        u64::try_from(self.scaled(time).as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Reads, changes and writes the turns under the file's lock.
    fn with_turns<T>(&self, change: impl FnOnce(&mut Turns) -> T) -> std::io::Result<T> {
        if let Some(folder) = self.file.parent() {
            create_private_dir(folder)?;
        }
        let mut file: File =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.file)?;
        // Held only while one line is read and written.
        file.lock()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut turns: Turns = serde_json::from_str(&text).unwrap_or_default();
        turns.forget_what_cannot_be(now());
        let changed = change(&mut turns);
        let text = serde_json::to_vec(&turns).map_err(std::io::Error::other)?;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(&text)?;
        Ok(changed)
    }
}

/// The result of requesting a turn.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    /// The turn is at this time.
    At(u64),
    /// Another launch is scheduled: request again at this time.
    AskAgainAt(u64),
}

impl Turns {
    fn take(&mut self, turn: Turn, now: u64, call: u64, launch: u64) -> Taken {
        let gap = |at: u64, other: u64| at.abs_diff(other) < call;
        match turn {
            Turn::Call => {
                let mut at = self.call.max(now);
                // A scheduled launch keeps its time; calls are scheduled around it.
                if gap(at, self.launch) {
                    at = self.launch + call;
                }
                self.call = at + call;
                Taken::At(at)
            }
            // Only one launch is scheduled and the others wait for it, so a process that dies wastes one turn at most.
            Turn::Launch if self.launch > now => Taken::AskAgainAt(self.launch),
            Turn::Launch => {
                let mut at = now.max(self.launch + launch).max(self.no_launch);
                // Calls scheduled before it keep their turns.
                if at < self.call {
                    at = self.call;
                }
                self.launch = at;
                Taken::At(at)
            }
        }
    }

    /// Records a call made now, or returns the milliseconds until it is allowed.
    fn come(&mut self, turn: Turn, now: u64, call: u64, launch: u64) -> Result<(), u64> {
        let after_launch = if turn == Turn::Launch { self.launched + launch } else { 0 };
        let from = (self.called + call).max(after_launch);
        if now < from {
            return Err(from - now);
        }
        self.called = now;
        if turn == Turn::Launch {
            self.launched = now;
        }
        Ok(())
    }

    fn forget_what_cannot_be(&mut self, now: u64) {
        for time in [&mut self.called, &mut self.launched] {
            *time = (*time).min(now);
        }
        let furthest = now + u64::try_from(FURTHEST.as_millis()).unwrap_or(u64::MAX);
        for time in [&mut self.call, &mut self.launch, &mut self.no_launch] {
            if *time > furthest {
                *time = now;
            }
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(taken: Taken) -> u64 {
        match taken {
            Taken::At(at) => at,
            Taken::AskAgainAt(at) => panic!("it waits until {at}"),
        }
    }

    #[test]
    fn calls_keep_their_interval() {
        let mut turns = Turns::default();
        let times: Vec<u64> = (0..4).map(|_| at(turns.take(Turn::Call, 1_000_000, 1000, 12_000))).collect();
        assert_eq!(times, [1_000_000, 1_001_000, 1_002_000, 1_003_000]);
    }

    #[test]
    fn a_launch_keeps_its_time_among_other_calls() {
        let mut turns = Turns::default();
        let first = at(turns.take(Turn::Launch, 1_000_000, 1000, 12_000));
        assert_eq!(first, 1_000_000);
        let second = at(turns.take(Turn::Launch, 1_000_100, 1000, 12_000));
        assert_eq!(second, 1_012_000);
        assert_eq!(turns.take(Turn::Launch, 1_000_200, 1000, 12_000), Taken::AskAgainAt(1_012_000));
        let mut now = 1_001_000;
        let mut calls = Vec::new();
        while now < 1_030_000 {
            let call = at(turns.take(Turn::Call, now, 1000, 12_000));
            calls.push(call);
            now = call;
        }
        assert!(calls.iter().all(|call| call.abs_diff(second) >= 1000), "{calls:?}");
        assert!(calls.windows(2).all(|pair| pair[1] - pair[0] >= 1000), "{calls:?}");
    }

    #[test]
    fn two_processes_share_a_pace_and_the_file_holds_no_key() {
        let folder = tempfile::tempdir().unwrap();
        let key = SecretString::from("secret_demo_1234".to_owned());
        let one = Pace::new(folder.path(), "http://h", &key, 1.0);
        let other = Pace::new(folder.path(), "http://h", &key, 1.0);
        assert_eq!(one.file, other.file);
        let take = |pace: &Pace| pace.with_turns(|turns| turns.take(Turn::Call, now(), 1000, 12_000)).unwrap();
        let (first, second) = (at(take(&one)), at(take(&other)));
        assert!(second >= first + 1000);
        let text = fs_err::read_to_string(&one.file).unwrap();
        assert!(!text.contains("secret") && !one.file.display().to_string().contains("secret"), "{text}");
    }

    #[test]
    fn the_interval_counts_from_a_late_call() {
        let mut turns = Turns::default();
        // Its turn was at 1 000 000; the next turn is a second later.
        assert_eq!(turns.come(Turn::Call, 1_000_300, 1000, 12_000), Ok(()));
        assert_eq!(turns.come(Turn::Launch, 1_001_000, 1000, 12_000), Err(300));
        assert_eq!(turns.come(Turn::Launch, 1_001_300, 1000, 12_000), Ok(()));
        assert_eq!(turns.come(Turn::Launch, 1_013_000, 1000, 12_000), Err(300));
        assert_eq!(turns.come(Turn::Call, 1_013_000, 1000, 12_000), Ok(()));
        // The clock was put back: earlier times are discarded.
        turns.forget_what_cannot_be(5_000);
        assert_eq!(turns.come(Turn::Call, 6_000, 1000, 12_000), Ok(()));
    }

    #[test]
    fn a_clock_that_was_put_back_blocks_no_call() {
        let mut turns = Turns { call: 9_000_000_000, launch: 9_000_000_000, ..Turns::default() };
        turns.forget_what_cannot_be(1_000_000);
        assert_eq!(at(turns.take(Turn::Call, 1_000_000, 1000, 12_000)), 1_001_000);
    }
}
