//! The journal, shared by the operations that are in flight.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::error::Result;
use crate::name::Key;
use crate::provider::Recorder;
use crate::state::{ClusterState, HostNotes, Notes, ProjectNotes, Record, Store};

/// A handle to the cluster's journal. What it has written is on the disk.
#[derive(Debug, Clone)]
pub struct Ledger {
    store: Arc<Mutex<Store>>,
}

impl Ledger {
    /// Takes a store into common use.
    pub fn new(store: Store) -> Self {
        Self { store: Arc::new(Mutex::new(store)) }
    }

    /// Writes one record to the disk.
    pub fn write(&self, record: Record) -> Result<()> {
        self.lock().write(record)
    }

    /// What is known now.
    pub fn state(&self) -> ClusterState {
        self.lock().state().clone()
    }

    /// Changes what is remembered of a host; writes nothing when nothing of it changes, or the host was not asked for.
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

    /// The same for what runs on a host.
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

    /// Writes a new snapshot.
    pub fn compact(&self) -> Result<()> {
        self.lock().compact()
    }

    /// The folder of the cluster's state.
    pub fn folder(&self) -> std::path::PathBuf {
        self.lock().folder().to_owned()
    }

    /// Gives the store back when nobody else holds the ledger.
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
