//! Reads and writes a cluster's folder: snapshot and journal.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::lock::unwritable;
use super::{ClusterState, Paths, Record, journal};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::{ClusterName, Scope};
use crate::spec::Spec;
use crate::util::fs::{HISTORY_LIMIT, create_private_dir, read_text_within, remove_tree, sync_folder, write_atomic};

/// The content of `snapshot.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Snapshot {
    version: u32,
    /// The number of the journal that continues it: `journal-<number>.jsonl`.
    journal: u64,
    state: ClusterState,
}

/// One cluster's state and its folder. Writing needs the cluster's lock; reading does not.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    journal: u64,
    state: ClusterState,
}

impl Store {
    /// Reads the state of a cluster; `None` if it has none.
    pub fn open(paths: &Paths, name: &ClusterName) -> Result<Option<Self>> {
        Self::open_folder(&paths.cluster(name))
    }

    fn open_folder(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("snapshot.json");
        let doing = || format!("read {}", path.display());
        let text = match read_text_within(&path, HISTORY_LIMIT) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::new(ErrorKind::State, doing()).caused_by(&error)),
        };
        let value: serde_json::Value = serde_json::from_str(&text).doing(ErrorKind::State, doing)?;
        let version = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if version > u64::from(journal::VERSION) {
            return Err(journal::newer(Error::new(ErrorKind::State, doing()), version));
        }
        if is_older(version) {
            let cluster = folder.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            return Err(journal::older(Error::new(ErrorKind::State, doing()), version, &cluster));
        }
        let snapshot: Snapshot = serde_json::from_value(value).doing(ErrorKind::State, doing)?;
        let mut store = Self { folder: folder.to_owned(), journal: snapshot.journal, state: snapshot.state };
        for line in journal::read(&store.journal_path())? {
            store.state.apply(line.record, line.at);
        }
        Ok(Some(store))
    }

    /// Removes state in a format that is no longer supported, but keeps credentials and SSH files. Returns its spec, if
    /// that is readable; `None` if there is no such state.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn forget_older(paths: &Paths, name: &ClusterName) -> Result<Option<Option<Spec>>> {
        let folder = paths.cluster(name);
        let snapshot = folder.join("snapshot.json");
        let value = read_text_within(&snapshot, HISTORY_LIMIT).ok();
        let value: Option<serde_json::Value> = value.and_then(|text| serde_json::from_str(&text).ok());
        let Some(value) = value.filter(|value| value["version"].as_u64().is_some_and(is_older)) else {
            return Ok(None);
        };
        let doing = || format!("forget the old state in {}", folder.display());
        for entry in fs_err::read_dir(&folder).doing(ErrorKind::State, doing)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("journal-") {
                fs_err::remove_file(entry.path()).doing(ErrorKind::State, doing)?;
            }
        }
        fs_err::remove_file(&snapshot).doing(ErrorKind::State, doing)?;
        Ok(Some(serde_json::from_value(value["state"]["spec"].clone()).ok()))
    }

    /// Creates the state of a new cluster.
    pub fn create(paths: &Paths, scope: &Scope, now: jiff::Timestamp) -> Result<Self> {
        let folder = paths.cluster(&scope.cluster);
        let doing = || format!("begin the state of the cluster {}", scope.cluster);
        create_private_dir(&folder).map_err(|error| unwritable(doing(), &folder, &error))?;
        let mut store = Self { folder, journal: 0, state: ClusterState::new(scope, now) };
        match store.compact() {
            Ok(()) => Ok(store),
            Err(error) => {
                let _ = remove_tree(&store.folder);
                Err(error)
            }
        }
    }

    /// The current state.
    pub fn state(&self) -> &ClusterState {
        &self.state
    }

    /// The cluster's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Appends one record to the journal, then applies it.
    pub fn write(&mut self, record: Record) -> Result<()> {
        let now = jiff::Timestamp::now();
        journal::append(&self.journal_path(), &record, now)?;
        self.state.apply(record, now);
        Ok(())
    }

    /// Writes the state to a new snapshot, and begins a new journal.
    pub fn compact(&mut self) -> Result<()> {
        let doing = || format!("write {}", self.folder.join("snapshot.json").display());
        let old = self.journal_path();
        let write = || -> std::io::Result<()> {
            // The agent may append at any time: its records so far belong in the snapshot.
            let mut file = crate::util::fs::open_append(&old)?;
            journal::locked(&mut file, |_| {
                let known = Self::open_folder(&self.folder).ok().flatten();
                let state = known.map_or_else(|| self.state.clone(), |known| known.state);
                let snapshot = Snapshot { version: journal::VERSION, journal: self.journal + 1, state };
                let text = serde_json::to_vec_pretty(&snapshot).map_err(std::io::Error::other)?;
                write_atomic(&self.folder.join("snapshot.json"), &text, 0o600)
            })
        };
        write().map_err(|error| unwritable(doing(), &self.folder, &error))?;
        self.journal += 1;
        let _ = fs_err::remove_file(old);
        Ok(())
    }

    /// Removes the cluster's folder.
    pub fn remove(self) -> Result<()> {
        let doing = || format!("remove {}", self.folder.display());
        // The snapshot goes first: a folder without one counts as no cluster.
        match fs_err::remove_file(self.folder.join("snapshot.json")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::new(ErrorKind::State, doing()).caused_by(&error));
            }
            _ => {}
        }
        remove_tree(&self.folder).doing(ErrorKind::State, doing)?;
        if let Some(above) = self.folder.parent() {
            sync_folder(above).doing(ErrorKind::State, doing)?;
        }
        Ok(())
    }

    /// The names of all clusters that have state.
    pub fn names(paths: &Paths) -> Result<Vec<ClusterName>> {
        let folder = paths.clusters();
        let entries = match fs_err::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::new(ErrorKind::State, "list the clusters").caused_by(&error)),
        };
        let mut names: Vec<ClusterName> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            // The journal of standalone leases is in the same folder, but is no cluster.
            .filter(|name: &ClusterName| !name.is_reserved())
            .filter(|name| paths.cluster(name).join("snapshot.json").exists())
            .collect();
        names.sort();
        Ok(names)
    }

    fn journal_path(&self) -> PathBuf {
        self.folder.join(format!("journal-{}.jsonl", self.journal))
    }
}

/// Whether this format version is no longer supported.
fn is_older(version: u64) -> bool {
    version < u64::from(journal::VERSION)
}
