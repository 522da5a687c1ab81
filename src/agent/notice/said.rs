//! What was said of a cluster: each thing once, whoever is at it, also across processes that were killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::util::fs::{HISTORY_LIMIT, open_append, read_text_within, remove_file};
use crate::util::process::Identity;

/// How far a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// A process sends it.
    Begun,
    /// It was taken.
    Sent,
    /// It was not taken, and is given up.
    Failed,
}

/// A line of the record.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    key: String,
    step: Step,
    /// The process that sends it: number, start time, boot id.
    by: String,
}

/// What was said of a cluster.
#[derive(Debug, Default)]
pub struct Said(BTreeMap<String, Line>);

impl Said {
    /// Reads the record of a cluster.
    pub fn of(folder: &Path) -> Self {
        let text = read_text_within(&file(folder), HISTORY_LIMIT).unwrap_or_default();
        // A line that was cut, as its process was killed, says nothing.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        Self(lines.map(|line| (line.key.clone(), line)).collect())
    }

    /// Whether nobody need say this any more: it was said or given up, or another process is at it.
    pub fn has(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(Line::is_over)
    }

    /// The parts behind this prefix of what has been said.
    pub(super) fn of_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        let over = self.0.iter().filter(|(_, line)| line.is_over());
        over.filter_map(move |(key, _)| key.strip_prefix(prefix))
    }
}

impl Line {
    fn is_over(&self) -> bool {
        let is_alive = || self.by.parse().is_ok_and(|process: Identity| process.goes_on());
        self.step != Step::Begun || is_alive()
    }
}

/// Begins to say something; `false` if that was done, or another process is at it. With `again`, one that has failed is begun
/// again. Without a record it is begun: the cluster is gone, or its folder cannot be read.
pub(super) fn claim(folder: &Path, key: &str, again: bool) -> bool {
    let Ok(file) = existing(folder) else { return true };
    if file.lock().is_err() {
        return true;
    }
    let said = Said::of(folder);
    let has_failed = said.0.get(key).is_some_and(|line| line.step == Step::Failed);
    let is_mine = !said.has(key) || (again && has_failed);
    if is_mine {
        write(&file, key, Step::Begun);
    }
    let _ = file.unlock();
    is_mine
}

/// Records what came of it.
pub(super) fn note(folder: &Path, key: &str, step: Step) {
    if let Ok(file) = existing(folder) {
        write(&file, key, step);
    }
}

/// Appends a line, in one write. Errors are ignored: it is sent once more then.
fn write(mut file: &File, key: &str, step: Step) {
    let by = Identity::of(std::process::id()).map(|this| this.to_string()).unwrap_or_default();
    let line = serde_json::to_string(&Line { key: key.to_owned(), step, by }).unwrap_or_default();
    // A line that was cut before is ended first.
    let _ = file.write_all(format!("\n{line}\n").as_bytes());
}

/// Opens the record, which is made by `up` alone: a folder that is being removed gets no new file.
fn existing(folder: &Path) -> std::io::Result<File> {
    File::options().append(true).open(file(folder))
}

/// Begins the record, if there is none.
pub(super) fn begin(folder: &Path) -> std::io::Result<()> {
    open_append(&file(folder)).map(|_| ())
}

pub(super) fn forget(folder: &Path) -> std::io::Result<()> {
    remove_file(&file(folder))
}

fn file(folder: &Path) -> PathBuf {
    folder.join("notices.jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_is_said_once_by_one_process_and_again_only_if_that_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(claim(folder, "ready", false), "a cluster that is gone has no record");
        assert!(!file(folder).exists(), "none is made for it");
        begin(folder).unwrap();
        assert!(claim(folder, "ready", false));
        assert!(!claim(folder, "ready", false), "this process is at it");
        note(folder, "ready", Step::Sent);
        assert!(!claim(folder, "ready", true) && Said::of(folder).has("ready"));
        // One that was killed: its line may be cut.
        let gone = r#"{"key":"saved-3","step":"begun","by":"1:1:00000000-0000-0000-0000-000000000000"}"#;
        let text = format!("{}{gone}\n{{\"key\":\"do", fs_err::read_to_string(file(folder)).unwrap());
        fs_err::write(file(folder), text).unwrap();
        assert!(!Said::of(folder).has("saved-3") && claim(folder, "saved-3", false));
        assert!(Said::of(folder).has("saved-3"));
        note(folder, "saved-3", Step::Failed);
        assert!(!claim(folder, "saved-3", false) && claim(folder, "saved-3", true));
        assert_eq!(Said::of(folder).of_prefix("saved-").collect::<Vec<_>>(), ["3"]);
    }

    #[test]
    fn of_many_at_once_one_says_it() {
        let folder = tempfile::tempdir().unwrap();
        begin(folder.path()).unwrap();
        let claims: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..16).map(|_| scope.spawn(|| claim(folder.path(), "ready", false))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(claims.iter().filter(|mine| **mine).count(), 1);
    }
}
