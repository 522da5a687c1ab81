//! The journal, shared by concurrent operations.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::error::Result;
use crate::name::Key;
use crate::provider::Recorder;
use crate::state::{ClusterState, HostNotes, Notes, PlatformNotes, ProjectNotes, Record, Store};

/// A handle to the cluster's journal. Every write is on disk when it returns.
#[derive(Debug, Clone)]
pub struct Ledger {
    store: Arc<Mutex<Store>>,
}

impl Ledger {
    /// Wraps a store for shared use.
    pub fn new(store: Store) -> Self {
        Self { store: Arc::new(Mutex::new(store)) }
    }

    /// Appends one record to the journal.
    pub fn write(&self, record: Record) -> Result<()> {
        self.lock().write(record)
    }

    /// A copy of the current state.
    pub fn state(&self) -> ClusterState {
        self.lock().state().clone()
    }

    /// Updates the notes of a host. Writes nothing if they do not change, or if the state has no such host.
    pub fn note_host(&self, key: &Key, change: impl FnOnce(&mut HostNotes)) -> Result<()> {
        let mut store = self.lock();
        let Some(before) = store.state().host(key) else { return Ok(()) };
        let mut host = before.clone();
        change(&mut host);
        if host == *before {
            return Ok(());
        }
        store.write(Record::Noted { key: key.clone(), notes: Notes::Host(Box::new(host)) })
    }

    /// Replaces the notes of what runs a cluster on a platform, if they change and the state has it.
    pub fn note_platform(&self, key: &Key, notes: PlatformNotes) -> Result<()> {
        let mut store = self.lock();
        let notes = Notes::Platform(Box::new(notes));
        match store.state().items.get(key) {
            Some(item) if item.notes != notes => store.write(Record::Noted { key: key.clone(), notes }),
            _ => Ok(()),
        }
    }

    /// Updates the notes of a project in the same way.
    pub fn note_project(&self, key: &Key, change: impl FnOnce(&mut ProjectNotes)) -> Result<()> {
        let mut store = self.lock();
        let Some(before) = store.state().project(key) else { return Ok(()) };
        let mut project = before.clone();
        change(&mut project);
        if project == *before {
            return Ok(());
        }
        store.write(Record::Noted { key: key.clone(), notes: Notes::Project(Box::new(project)) })
    }

    /// Writes a new snapshot and begins a new journal.
    pub fn compact(&self) -> Result<()> {
        self.lock().compact()
    }

    /// The folder of the cluster's state.
    pub fn folder(&self) -> std::path::PathBuf {
        self.lock().folder().to_owned()
    }

    /// Returns the store, if this is the last handle.
    pub fn into_store(self) -> Option<Store> {
        Arc::into_inner(self.store).map(|store| store.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Recorder for Ledger {
    async fn exists(&self, key: &Key, id: &str) -> Result<()> {
        self.write(Record::Exists { key: key.clone(), id: id.to_owned() })
    }
}
