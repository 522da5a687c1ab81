//! What the reaper of a node has written down (`templates/ray-native/reaper.py`). It is what helps when nobody lives any more
//! who saw what the node started.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::name::{Key, Scope, Tag};
use crate::util::fs::write_atomic;
use crate::util::process::{Identity, Stat, boot_id};

/// Where the records of a host lie in its folder.
const FOLDER: &str = "processes";

/// What is written down of one node.
#[derive(Debug, Default)]
pub struct Record {
    path: PathBuf,
    reaper: Option<(u32, u64)>,
    group: Option<PathBuf>,
    sessions: BTreeSet<u32>,
    processes: BTreeSet<(u32, u64)>,
    over: bool,
    lost: bool,
}

impl Record {
    /// The record of a node of the host with this folder; nothing when there is none of this boot.
    pub fn of(host: &Path, key: &Key) -> Option<Self> {
        Self::load(host.join(FOLDER).join(key.as_str()))
    }

    /// All records of one host.
    pub fn of_host(host: &Path) -> Vec<(Key, Self)> {
        let files = fs_err::read_dir(host.join(FOLDER)).into_iter().flatten().flatten();
        let named = files.filter_map(|file| Some((file.file_name().to_str()?.parse().ok()?, file.path())));
        named.filter_map(|(key, path)| Some((key, Self::load(path)?))).collect()
    }

    /// All records of a cluster, whose hosts have their folders in this one.
    pub fn of_cluster(scope: &Scope, hosts: &Path) -> Vec<(Key, Self)> {
        let folders = fs_err::read_dir(hosts).into_iter().flatten().flatten();
        let is_ours = |name: &str| name.parse::<Tag>().is_ok_and(|tag| scope.holds(&tag));
        let ours = folders.filter(|folder| folder.file_name().to_str().is_some_and(is_ours));
        ours.flat_map(|folder| Self::of_host(&folder.path())).collect()
    }

    fn load(path: PathBuf) -> Option<Self> {
        let text = fs_err::read_to_string(&path).ok()?;
        let mut record = Self { path, ..Self::default() };
        let mut boot = None;
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            let mut numbers = rest.split(' ').map_while(|word| word.parse::<u64>().ok());
            let mut process = || Some((u32::try_from(numbers.next()?).ok()?, numbers.next()?));
            match kind {
                "boot" => boot = Some(rest),
                "reaper" => record.reaper = process(),
                "process" => record.processes.extend(process()),
                "session" => record.sessions.extend(rest.parse::<u32>()),
                // Nobody writes a folder there that is not a node's group.
                "group" => {
                    let is_ours = |path: &PathBuf| {
                        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("gpucl-"))
                    };
                    record.group = Some(PathBuf::from(rest)).filter(is_ours);
                }
                "over" => record.over = true,
                "lost" => record.lost = true,
                _ => {}
            }
        }
        (boot == Some(boot_id().as_str())).then_some(record)
    }

    /// Whether something may have been missed, now or of an earlier node of this name.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether this reaper wrote it.
    pub fn is_of(&self, identity: &Identity) -> bool {
        self.reaper == Some((identity.pid, identity.start))
    }

    /// Whether all that it is about have ended.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the node's processes were all in a control group, or its reaper lives: then none can be missed.
    pub(super) fn is_sure(&self, table: &BTreeMap<u32, Stat>) -> bool {
        let lives = |(pid, start): (u32, u64)| table.get(&pid).is_some_and(|stat| stat.runs && stat.start == start);
        self.over || self.group.is_some() || self.reaper.is_some_and(lives)
    }

    /// The numbers of those of its processes that run, and of whoever is in a session of theirs.
    pub(super) fn living(&self, table: &BTreeMap<u32, Stat>) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let mut sessions = BTreeSet::new();
        for (pid, start) in self.processes.iter().chain(&self.reaper) {
            let Some(stat) = table.get(pid).filter(|stat| stat.runs && stat.start == *start) else { continue };
            found.insert(*pid);
            // While one of ours is in it, its number cannot have become a stranger's session.
            if self.sessions.contains(&stat.session) {
                sessions.insert(stat.session);
            }
        }
        found
            .extend(table.iter().filter(|(_, stat)| stat.runs && sessions.contains(&stat.session)).map(|(pid, _)| pid));
        found
    }

    /// Ends all that is in the control group, and removes it; hands back whether none is left. It may have to be called again.
    pub fn end_group(&self) -> bool {
        let Some(group) = self.group.as_ref().filter(|group| group.is_dir()) else { return true };
        let _ = fs_err::write(group.join("cgroup.kill"), "1");
        remove_groups(group);
        !group.exists()
    }

    /// Writes down that all have ended, and whether one may have been missed.
    pub fn finish(&self, lost: bool) {
        let lost = if self.lost || lost { "lost\n" } else { "" };
        // The folder may be gone already, and nobody is left to be found by it.
        let _ = write_atomic(&self.path, format!("boot {}\n{lost}over\n", boot_id()).as_bytes(), 0o600);
    }
}

/// A group is removed after those in it; one in which something runs stays.
fn remove_groups(group: &Path) {
    for entry in fs_err::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    let _ = fs_err::remove_dir(group);
}
