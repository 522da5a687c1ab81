//! The record of a cluster that was taken down by its limits, for later commands that name it.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::money::{Money, describe};
use crate::name::ClusterName;
use crate::state::Paths;
use crate::util::fs::{RECORD_LIMIT, create_private_dir, read_within, write_atomic};

/// The version of the file format.
const VERSION: u32 = 1;

/// The record of a cluster that was taken down by its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    version: u32,
    /// When it was taken down.
    pub at: Timestamp,
    /// Why, as text.
    pub why: String,
    /// The cost, as text.
    pub cost: String,
    /// What was saved, and what was not, and why; a line for each.
    #[serde(default)]
    pub saved: Vec<String>,
}

impl Ended {
    /// Creates a record with the current time.
    pub fn now(why: String, cost: &[Money], saved: Vec<String>) -> Self {
        Self { version: VERSION, at: Timestamp::now(), why, cost: describe(cost), saved }
    }

    /// Writes the record; errors are ignored.
    pub fn write(&self, paths: &Paths, cluster: &ClusterName) {
        let path = ended_file(paths, cluster);
        let text = serde_json::to_vec(self).unwrap_or_default();
        let _ = path.parent().map_or(Ok(()), create_private_dir).and_then(|()| write_atomic(&path, &text, 0o600));
    }

    /// Reads the record of the last cluster of this name, if its limits ended it.
    pub fn of(paths: &Paths, cluster: &ClusterName) -> Option<Self> {
        serde_json::from_slice(&read_within(&ended_file(paths, cluster), RECORD_LIMIT).ok()?).ok()
    }

    /// Removes the record, as there is a new cluster of that name.
    pub fn forget(paths: &Paths, cluster: &ClusterName) {
        let path = ended_file(paths, cluster);
        let _ = fs_err::remove_file(&path);
        let _ = path.parent().map(fs_err::remove_dir);
    }
}

fn ended_file(paths: &Paths, cluster: &ClusterName) -> PathBuf {
    paths.state.join("ended").join(format!("{cluster}.json"))
}
