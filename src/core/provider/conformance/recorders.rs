//! Three recorders for tests: one that works, one that never returns, one that fails.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::provider::Recorder;

/// Records ids in memory, with an await point before and after where the call can be dropped.
#[derive(Debug, Default)]
pub(super) struct Notebook {
    lines: Mutex<Vec<(Key, String)>>,
}

impl Notebook {
    /// The ids recorded for a key.
    pub(super) fn ids(&self, key: &Key) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|(of, _)| of == key).map(|(_, id)| id.clone()).collect()
    }

    /// The number of recorded ids.
    pub(super) fn len(&self) -> usize {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[async_trait]
impl Recorder for Notebook {
    async fn exists(&self, key: &Key, id: &str) -> Result<()> {
        tokio::task::yield_now().await;
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push((key.clone(), id.to_owned()));
        tokio::task::yield_now().await;
        Ok(())
    }
}

/// Records the id and never returns, so that the caller can be dropped right after the effect.
#[derive(Debug, Default)]
pub(super) struct Silent {
    pub(super) taken: Notebook,
    pub(super) called: Notify,
}

#[async_trait]
impl Recorder for Silent {
    async fn exists(&self, key: &Key, id: &str) -> Result<()> {
        self.taken.exists(key, id).await?;
        self.called.notify_one();
        std::future::pending().await
    }
}

/// Fails like a full disk.
#[derive(Debug, Default)]
pub(super) struct Failing;

#[async_trait]
impl Recorder for Failing {
    async fn exists(&self, key: &Key, _id: &str) -> Result<()> {
        Err(Error::new(ErrorKind::State, format!("record that {key} exists"))
            .because("the conformance suite makes the recorder fail"))
    }
}
