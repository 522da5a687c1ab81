//! Which jobs have ended, as they were last looked at.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Doing as _, ErrorKind, Result};
use crate::ray::Job;
use crate::util::fs::{RECORD_LIMIT, read_within, remove_file, write_atomic};

/// The version of the file format.
const VERSION: u32 = 1;
/// The most jobs that are looked at: the newest ones.
const MOST: usize = 1000;

/// The jobs of a cluster that have ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndedJobs {
    pub(super) version: u32,
    /// Those that had ended when they were looked at first: no news.
    pub(super) before: Vec<String>,
    /// The others, each with Ray's status.
    pub(super) ended: Vec<(String, String)>,
}

impl EndedJobs {
    /// Reads the record of a cluster.
    pub fn of(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&read_within(&file(folder), RECORD_LIMIT).ok()?).ok()
    }

    /// Records what was seen now.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn record(folder: &Path, jobs: &[Job]) -> Result<()> {
        let path = file(folder);
        let doing = || format!("write {}", path.display());
        let text = serde_json::to_vec(&Self::next(Self::of(folder), jobs)).doing(ErrorKind::Internal, doing)?;
        write_atomic(&path, &text, 0o600).doing(ErrorKind::State, doing)
    }

    /// The record after another look, with jobs that are the oldest first.
    fn next(last: Option<Self>, jobs: &[Job]) -> Self {
        let newest = &jobs[jobs.len().saturating_sub(MOST)..];
        let over = newest.iter().filter(|job| job.was_submitted() && job.status.is_terminal());
        let over = over.map(|job| (job.id().to_owned(), job.status.as_str().to_owned()));
        let (before, ended) = over.partition::<Vec<_>, _>(|(id, _)| match &last {
            Some(last) => last.before.contains(id),
            None => true,
        });
        Self { version: VERSION, before: before.into_iter().map(|(id, _)| id).collect(), ended }
    }
}

pub(super) fn forget(folder: &Path) -> std::io::Result<()> {
    remove_file(&file(folder))
}

fn file(folder: &Path) -> PathBuf {
    folder.join("jobs-seen.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_had_ended_before_the_first_look_are_no_news() {
        let job = |id: &str, status: &str| -> Job {
            let text =
                serde_json::json!({"type": "SUBMISSION", "submission_id": id, "status": status, "entrypoint": "x"});
            serde_json::from_value(text).unwrap()
        };
        let first = EndedJobs::next(None, &[job("a", "FAILED"), job("b", "RUNNING")]);
        assert_eq!(first.ended, []);
        let second = EndedJobs::next(Some(first), &[job("a", "FAILED"), job("b", "SUCCEEDED"), job("c", "PENDING")]);
        assert_eq!(second.ended, [("b".to_owned(), "SUCCEEDED".to_owned())]);
        let driver = serde_json::json!({"type": "DRIVER", "job_id": "01", "status": "SUCCEEDED", "entrypoint": ""});
        let third =
            EndedJobs::next(Some(second.clone()), &[job("b", "SUCCEEDED"), serde_json::from_value(driver).unwrap()]);
        assert_eq!(third.ended, second.ended, "a program that connected by itself is no job");
    }
}
