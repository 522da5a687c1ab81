//! Recorders of three tempers: one that writes down, one that never answers, one that fails.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::provider::Recorder;

/// Writes down, with a place to be dropped before and after.
#[derive(Debug, Default)]
pub(super) struct Notebook {
    lines: Mutex<Vec<(Key, String)>>,
}

impl Notebook {
    /// The ids that were written down for a key.
    pub(super) fn ids(&self, key: &Key) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().filter(|(of, _)| of == key).map(|(_, id)| id.clone()).collect()
    }

    /// Everything that was written down.
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

/// Takes the id and never answers, so that the caller can be dropped exactly after the effect.
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

/// Fails, as a full disk does.
#[derive(Debug, Default)]
pub(super) struct Failing;

#[async_trait]
impl Recorder for Failing {
    async fn exists(&self, key: &Key, _id: &str) -> Result<()> {
        Err(Error::new(ErrorKind::State, format!("write down that {key} exists")).because("the suite says so"))
    }
}
