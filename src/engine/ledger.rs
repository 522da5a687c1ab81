//! The journal, shared by the operations that are in flight.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::error::Result;
use crate::name::Key;
use crate::provider::Recorder;
use crate::state::{ClusterState, Record, Store};

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

    /// Remembers something of an item.
    pub fn note(&self, key: &Key, name: &str, value: &impl serde::Serialize) -> Result<()> {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.write(Record::Noted { key: key.clone(), name: name.to_owned(), value })
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
