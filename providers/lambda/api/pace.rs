//! How often Lambda may be asked: once a second, and one launch in 12 s, by all gpucl processes of this user together.
//!
//! They share a file that says when the next call may be made. It is named by a digest of the account, and holds times only. A call
//! takes its turn under the file's lock, and waits for it without.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::util::digest;
use crate::util::fs::create_private_dir;

/// Between two calls. Lambda counts when they arrive: a little more than its second is left for the way there.
const CALL: Duration = Duration::from_millis(1050);
/// Between two launches.
const LAUNCH: Duration = Duration::from_millis(12_150);
/// How long a call may be on its way there: a new connection takes some round trips.
const ON_THE_WAY: Duration = Duration::from_millis(300);
/// No turn lies further ahead: the clock was put back since it was written.
const FURTHEST: Duration = Duration::from_secs(10 * 60);

/// What a turn is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Any call.
    Call,
    /// A launch.
    Launch,
}

/// When one may speak.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    file: PathBuf,
    factor: f64,
}

/// The file: milliseconds since 1970.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Turns {
    /// Before this, no call that is not a launch.
    call: u64,
    /// When the last launch was or will be made.
    launch: u64,
    /// No launch before this.
    no_launch: u64,
    /// When the last call was made, launches included: who had a turn may have come late to it.
    called: u64,
    /// When the last launch was made.
    launched: u64,
}

impl Pace {
    /// The pace of an account. The factor is 1, and less with a stand-in that is in a hurry.
    pub(crate) fn new(folder: &Path, endpoint: &str, key: &SecretString, factor: f64) -> Self {
        let name = digest::of_json(&("lambda", endpoint, key.expose_secret()));
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
        Self { file: folder.join("pace").join(format!("lambda-{name}")), factor }
    }

    /// A time of Lambda's, as long as it is here.
    pub(crate) fn scaled(&self, time: Duration) -> Duration {
        time.mul_f64(self.factor)
    }

    /// Waits for a turn; hands back when it was. Dropped while it waits, it leaves a gap and nothing else.
    pub(crate) async fn turn(&self, turn: Turn) -> u64 {
        loop {
            let now = now();
            let taken = self.with_turns(|turns| turns.take(turn, now, self.millis(CALL), self.millis(LAUNCH)));
            match taken {
                // Without the file nobody is known: every call waits as if another had just been made.
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

    /// Makes use of a turn that has come: after one that came late to its own it is waited for a moment more.
    async fn come(&self, turn: Turn) -> u64 {
        let wait = || self.with_turns(|turns| turns.come(turn, now(), self.millis(CALL), self.millis(LAUNCH)));
        while let Ok(Err(wait)) = wait() {
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        now()
    }

    /// What was called at this time was answered now: it may have arrived late, and the next keeps its distance from that.
    pub(crate) fn answered(&self, called: u64) {
        let arrived = now().min(called + self.millis(ON_THE_WAY));
        let _ = self.with_turns(|turns| turns.called = turns.called.max(arrived));
    }

    /// Nobody speaks for so long: Lambda said that it was too often.
    pub(crate) fn hold(&self, turn: Turn, time: Duration) {
        let until = now() + u64::try_from(time.as_millis()).unwrap_or(0);
        let _ = self.with_turns(|turns| {
            turns.call = turns.call.max(until);
            if turn == Turn::Launch {
                turns.no_launch = turns.no_launch.max(until);
            }
        });
    }

    /// How long to leave it alone after a 429 that does not say.
    pub(crate) fn penalty(&self, turn: Turn) -> Duration {
        match turn {
            Turn::Call => self.scaled(CALL * 3),
            Turn::Launch => self.scaled(LAUNCH),
        }
    }

    fn millis(&self, time: Duration) -> u64 {
        u64::try_from(self.scaled(time).as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Reads the turns, changes them and writes them, under the lock of their file.
    fn with_turns<T>(&self, change: impl FnOnce(&mut Turns) -> T) -> std::io::Result<T> {
        if let Some(folder) = self.file.parent() {
            create_private_dir(folder)?;
        }
        let mut file: File =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.file)?;
        // Held for as long as it takes to write a line.
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

/// What came of asking for a turn.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    /// It is at this time.
    At(u64),
    /// It is another's launch until then.
    AskAgainAt(u64),
}

impl Turns {
    fn take(&mut self, turn: Turn, now: u64, call: u64, launch: u64) -> Taken {
        let gap = |at: u64, other: u64| at.abs_diff(other) < call;
        match turn {
            Turn::Call => {
                let mut at = self.call.max(now);
                // A launch that waits for its time keeps it, and calls go around it.
                if gap(at, self.launch) {
                    at = self.launch + call;
                }
                self.call = at + call;
                Taken::At(at)
            }
            // One launch waits with a time of its own; the others wait for it, so that a process that dies takes no more than one.
            Turn::Launch if self.launch > now => Taken::AskAgainAt(self.launch),
            Turn::Launch => {
                let mut at = now.max(self.launch + launch).max(self.no_launch);
                // Calls that have a turn before it keep it.
                if at < self.call {
                    at = self.call;
                }
                self.launch = at;
                Taken::At(at)
            }
        }
    }

    /// A call is made now; or it is not, and so many milliseconds are left until it may be.
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
    fn calls_come_one_after_another() {
        let mut turns = Turns::default();
        let times: Vec<u64> = (0..4).map(|_| at(turns.take(Turn::Call, 1_000_000, 1000, 12_000))).collect();
        assert_eq!(times, [1_000_000, 1_001_000, 1_002_000, 1_003_000]);
    }

    #[test]
    fn a_launch_keeps_its_time_whatever_else_is_asked() {
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
    fn who_comes_late_to_a_turn_is_not_overtaken() {
        let mut turns = Turns::default();
        // It was to be made at 1 000 000; the next has its turn a second later.
        assert_eq!(turns.come(Turn::Call, 1_000_300, 1000, 12_000), Ok(()));
        assert_eq!(turns.come(Turn::Launch, 1_001_000, 1000, 12_000), Err(300));
        assert_eq!(turns.come(Turn::Launch, 1_001_300, 1000, 12_000), Ok(()));
        assert_eq!(turns.come(Turn::Launch, 1_013_000, 1000, 12_000), Err(300));
        assert_eq!(turns.come(Turn::Call, 1_013_000, 1000, 12_000), Ok(()));
        // The clock was put back: nobody waits for what it said.
        turns.forget_what_cannot_be(5_000);
        assert_eq!(turns.come(Turn::Call, 6_000, 1000, 12_000), Ok(()));
    }

    #[test]
    fn a_clock_that_was_put_back_stops_nobody() {
        let mut turns = Turns { call: 9_000_000_000, launch: 9_000_000_000, ..Turns::default() };
        turns.forget_what_cannot_be(1_000_000);
        assert_eq!(at(turns.take(Turn::Call, 1_000_000, 1000, 12_000)), 1_001_000);
    }
}
