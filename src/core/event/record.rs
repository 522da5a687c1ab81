//! The record of a run: its events as JSON lines in the state folder.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use super::{Event, Sink};
use crate::util::{fs, text};

/// How many run records are kept in the folder.
const KEPT: usize = 100;

/// Writes the record of one run.
#[derive(Debug)]
pub struct RunRecord {
    file: Option<File>,
}

impl RunRecord {
    /// Begins a record. If the file cannot be created, the run continues without one.
    pub fn begin(runs: &Path, run: &str) -> Self {
        let open = || -> std::io::Result<File> {
            fs::create_private_dir(runs)?;
            prune(runs);
            fs::open_append(&runs.join(format!("{run}.jsonl")))
        };
        Self { file: open().ok() }
    }
}

impl Sink for RunRecord {
    fn take(&mut self, event: &Event) {
        if let Some(file) = &mut self.file {
            // Control characters are escaped, so that the file is safe to show in a terminal.
            let line = text::json(serde_json::to_string(event).unwrap_or_default()) + "\n";
            let _ = file.write_all(line.as_bytes());
        }
    }
}

/// Removes the oldest records; their names begin with their time.
fn prune(runs: &Path) {
    let Ok(entries) = fs_err::read_dir(runs) else { return };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    names.sort();
    let excess = names.len().saturating_sub(KEPT - 1);
    for path in names.into_iter().take(excess) {
        let _ = fs_err::remove_file(path);
    }
}
