//! What was last seen of the guards on a cluster's hosts, and what was copied to this machine: the record that the agent
//! decides by, and that commands show.
//!
//! The guards' own states are the truth; this is a copy for commands that ask no host, and for when the hosts are gone.

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, ErrorKind, Result};
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_within, remove_file, write_atomic};
use crate::util::when::{between, later};

/// The version of the file formats.
const VERSION: u32 = 1;

/// How far a guard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardPhase {
    /// The end is not near.
    #[default]
    Waiting,
    /// Jobs are asked to save, and what they write is copied.
    Draining,
    /// Jobs were stopped, and what is left is copied.
    Saving,
    /// All is copied that could be.
    Saved,
    /// The end has passed.
    Over,
    /// The end was moved after the drain began.
    CalledOff,
    /// One that this gpucl does not know.
    #[serde(other)]
    Unknown,
}

impl GuardPhase {
    /// Whether it copies nothing more.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Saved | Self::Over)
    }

    /// Whether it has begun, and is not done.
    pub fn is_at_work(self) -> bool {
        matches!(self, Self::Draining | Self::Saving)
    }
}

impl std::fmt::Display for GuardPhase {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Waiting => "waiting",
            Self::Draining => "jobs are asked to save",
            Self::Saving => "saving",
            Self::Saved => "saved",
            Self::Over => "the end has passed",
            Self::CalledOff => "called off",
            Self::Unknown => "unknown",
        })
    }
}

/// What came of one thing to save.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// What.
    pub from: String,
    /// Where to.
    pub to: String,
    /// How many files are there.
    pub files: u64,
    /// How large they are, in bytes.
    pub bytes: u64,
    /// Whether all of it is there, verified.
    pub complete: bool,
    /// Why it is not.
    pub failed: Option<String>,
    /// The newest checkpoint among it.
    pub newest: Option<String>,
}

impl Saved {
    /// What came of it, in a line: `results → s3://bucket/run1: 12 files, 3.4 GiB, verified`.
    pub fn line(&self) -> String {
        let amount =
            format!("{}, {}", crate::util::human::count_u64(self.files, "file"), crate::util::human::bytes(self.bytes));
        let newest = self.newest.as_ref().map(|newest| format!(", newest {newest}")).unwrap_or_default();
        let how = match (self.complete, &self.failed) {
            (true, _) => format!("{amount}{newest}, verified"),
            (false, Some(why)) => format!("NOT all saved: {why} ({amount}{newest} so far)"),
            (false, None) => format!("not all saved yet ({amount}{newest} so far)"),
        };
        format!("{} to {}: {how}", self.from, self.to)
    }
}

impl Saved {
    /// The same where nothing here has looked since then, and the end came meanwhile.
    pub fn unseen_line(&self, since: Timestamp) -> String {
        let (from, to) = (&self.from, self.to.trim_end_matches('/'));
        let since = crate::util::human::local(since);
        format!("{from} to {}: not seen from here since {since}, before the end; its list is in {to}/.gpucl", self.to)
    }
}

/// A job, as a guard sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobRow {
    /// Its id.
    pub id: String,
    /// Ray's status of it.
    pub status: String,
    /// The guard has stopped it.
    pub stopped: bool,
}

/// When anybody last used the cluster, as its guard sees it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Activity {
    /// Since when nobody uses it, by the host's clock; `None` while somebody does.
    pub since: Option<Timestamp>,
    /// What was seen last: `a job runs`.
    pub saw: Option<String>,
}

/// The state of a guard, as its host reports it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GuardState {
    /// How far it is.
    pub phase: GuardPhase,
    /// The revision of the end that it knows.
    pub revision: u64,
    /// The end that it knows, by its clock.
    pub end: Option<Timestamp>,
    /// By how many seconds its clock differs from the one of who gave it the end, if that is much.
    pub skew_s: Option<f64>,
    /// The jobs that were at work since the end began, or are still.
    pub jobs: Vec<JobRow>,
    /// What was saved.
    pub saved: Vec<Saved>,
    /// Whether all that is to be saved fits in the time that is left.
    pub fits: Option<bool>,
    /// The bytes that will be missing.
    pub missing_bytes: u64,
    /// Who uses the cluster; only from the head's host.
    pub activity: Option<Activity>,
}

/// What was seen on one host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostGuard {
    /// Its display name.
    pub host: String,
    /// The state of its guard.
    pub guard: Option<GuardState>,
    /// Why there is none.
    pub error: Option<String>,
}

/// What was last seen of all guards of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuardsReport {
    version: u32,
    /// When.
    pub at: Timestamp,
    /// The hosts that have a guard, and those that did not answer.
    pub hosts: Vec<HostGuard>,
    /// Since when nobody uses the cluster, by the clock of this machine.
    #[serde(default)]
    pub idle_since: Option<Timestamp>,
}

impl GuardsReport {
    /// Creates a record; `clocks` are the hosts' clocks at that moment, in the order of the hosts.
    pub fn new(at: Timestamp, hosts: Vec<HostGuard>, clocks: &[Option<Timestamp>]) -> Self {
        let idle_since = idle_since(at, &hosts, clocks);
        Self { version: VERSION, at, hosts, idle_since }
    }

    /// Reads the record of a cluster.
    pub fn of(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&read_within(&file(folder), RECORD_LIMIT).ok()?).ok()
    }

    /// Writes the record.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        write(folder, &file(folder), self)
    }

    /// The states of the guards.
    pub fn guards(&self) -> impl Iterator<Item = (&str, &GuardState)> {
        self.hosts.iter().filter_map(|host| Some((host.host.as_str(), host.guard.as_ref()?)))
    }

    /// Whether every guard has saved all before the end of this revision.
    pub fn all_saved(&self, revision: u64) -> bool {
        let is_saved = |host: &HostGuard| {
            host.guard.as_ref().is_some_and(|guard| {
                guard.phase.is_done() && guard.revision >= revision && guard.saved.iter().all(|saved| saved.complete)
            })
        };
        !self.hosts.is_empty() && self.hosts.iter().all(is_saved)
    }

    /// Whether every host answered, and has saved all.
    pub fn is_whole(&self) -> bool {
        let is_whole =
            |host: &HostGuard| host.guard.as_ref().is_some_and(|guard| guard.saved.iter().all(|one| one.complete));
        self.hosts.iter().all(is_whole)
    }

    /// Whether the last minutes had begun on any host.
    pub fn has_begun(&self) -> bool {
        self.guards().any(|(_, guard)| guard.phase.is_at_work() || guard.phase.is_done())
    }

    /// The highest revision that a guard has reported.
    pub fn revision(&self) -> u64 {
        self.guards().map(|(_, guard)| guard.revision).max().unwrap_or_default()
    }

    /// What was last seen in use.
    pub fn saw(&self) -> Option<&str> {
        self.guards().find_map(|(_, guard)| guard.activity.as_ref()?.saw.as_deref())
    }
}

/// Since when nobody uses any host, by the clock of this machine: a host's clock may be wrong, but what has passed on it since
/// is right.
fn idle_since(at: Timestamp, hosts: &[HostGuard], clocks: &[Option<Timestamp>]) -> Option<Timestamp> {
    let mut latest: Option<Timestamp> = None;
    for (index, host) in hosts.iter().enumerate() {
        // A host that does not answer may be in use.
        let guard = host.guard.as_ref()?;
        let Some(activity) = &guard.activity else { continue };
        let there = clocks.get(index).copied().flatten()?;
        let idle = between(activity.since?, there).max(SignedDuration::ZERO);
        let since = later(at, -idle);
        latest = Some(latest.map_or(since, |latest| latest.max(since)));
    }
    latest
}

/// What was copied to this machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedHere {
    version: u32,
    /// When the last pass ended.
    pub at: Option<Timestamp>,
    /// The revision of the end for which the hosts had saved all when that pass began: nothing changes after that.
    pub last_pass_of: Option<u64>,
    /// What came of each.
    pub saved: Vec<Saved>,
}

impl SavedHere {
    /// Creates a record of a pass that has ended now.
    pub fn now(saved: Vec<Saved>, last_pass_of: Option<u64>) -> Self {
        Self { version: VERSION, at: Some(Timestamp::now()), last_pass_of, saved }
    }

    /// Reads the record of a cluster.
    pub fn of(folder: &Path) -> Self {
        read_within(&here_file(folder), RECORD_LIMIT)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    /// Writes the record.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        write(folder, &here_file(folder), self)
    }
}

/// All that is known of what was saved of a cluster, on hosts and here.
pub fn all_saved_of(folder: &Path) -> Vec<Saved> {
    all_saved(GuardsReport::of(folder).as_ref(), &SavedHere::of(folder))
}

/// The same from these records.
pub(super) fn all_saved(seen: Option<&GuardsReport>, here: &SavedHere) -> Vec<Saved> {
    let of_hosts = seen.into_iter().flat_map(GuardsReport::guards).flat_map(|(host, guard)| {
        guard.saved.iter().map(move |saved| match host {
            "host-0" => saved.clone(),
            other => Saved { from: format!("{} of {other}", saved.from), ..saved.clone() },
        })
    });
    of_hosts.chain(here.saved.iter().cloned()).collect()
}

/// Removes both records.
pub(super) fn forget(folder: &Path) -> std::io::Result<()> {
    remove_file(&file(folder))?;
    remove_file(&here_file(folder))
}

fn write(folder: &Path, path: &Path, record: &impl Serialize) -> Result<()> {
    let doing = || format!("write {}", path.display());
    let text = serde_json::to_vec(record).doing(ErrorKind::Internal, doing)?;
    create_private_dir(folder).doing(ErrorKind::State, doing)?;
    write_atomic(path, &text, 0o600).doing(ErrorKind::State, doing)
}

fn file(folder: &Path) -> PathBuf {
    folder.join("end-seen.json")
}

fn here_file(folder: &Path) -> PathBuf {
    folder.join("end-here.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-11-21T{text}Z").parse().unwrap()
    }

    fn host(since: Option<&str>) -> HostGuard {
        let activity = Activity { since: since.map(at), saw: Some("a job runs".to_owned()) };
        let guard = GuardState { activity: Some(activity), ..GuardState::default() };
        HostGuard { host: "host-0".to_owned(), guard: Some(guard), error: None }
    }

    #[test]
    fn idleness_counts_by_what_has_passed_on_the_host_whatever_its_clock_says() {
        let now = at("12:00:00");
        // Ten minutes by a clock that is an hour ahead.
        let seen = GuardsReport::new(now, vec![host(Some("12:50:00"))], &[Some(at("13:00:00"))]);
        assert_eq!(seen.idle_since, Some(at("11:50:00")));
        let in_use = GuardsReport::new(now, vec![host(Some("11:50:00")), host(None)], &[Some(now), Some(now)]);
        assert_eq!(in_use.idle_since, None);
        let silent = HostGuard { host: "host-1".to_owned(), ..HostGuard::default() };
        let unknown = GuardsReport::new(now, vec![host(Some("11:50:00")), silent], &[Some(now), None]);
        assert_eq!(unknown.idle_since, None, "a host that does not answer may be in use");
    }

    #[test]
    fn all_is_saved_when_every_guard_says_so_for_this_end() {
        let guard = |phase, revision, complete| {
            let saved = vec![Saved { complete, ..Saved::default() }];
            let guard = GuardState { phase, revision, saved, ..GuardState::default() };
            HostGuard { host: String::new(), guard: Some(guard), error: None }
        };
        let seen = |hosts| GuardsReport::new(at("12:00:00"), hosts, &[]);
        assert!(seen(vec![guard(GuardPhase::Saved, 3, true)]).all_saved(3));
        assert!(!seen(vec![guard(GuardPhase::Saved, 2, true)]).all_saved(3), "that was an earlier end");
        assert!(!seen(vec![guard(GuardPhase::Saved, 3, false)]).all_saved(3));
        assert!(!seen(vec![guard(GuardPhase::Saved, 3, true), guard(GuardPhase::Saving, 3, true)]).all_saved(3));
        assert!(!seen(Vec::new()).all_saved(3));
    }

    #[test]
    fn a_state_of_a_newer_guard_is_read() {
        let text =
            r#"{"v": 1, "phase": "resting", "revision": 2, "more": {}, "skew_s": null, "rate": 1.5, "fits": true}"#;
        let state: GuardState = serde_json::from_str(text).unwrap();
        assert_eq!((state.phase, state.revision, state.fits), (GuardPhase::Unknown, 2, Some(true)));
    }
}
