//! How an id reaches the journal before the call that made it returns.

use async_trait::async_trait;

use crate::error::Result;
use crate::name::Key;

/// Takes an id to safety. When it returns, the id is on the disk.
#[async_trait]
pub trait Recorder: Send + Sync {
    /// Writes down that the resource of this key exists under this id.
    async fn exists(&self, key: &Key, id: &str) -> Result<()>;
}

/// What `acquire` hands back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquired {
    /// The provider's id.
    pub id: String,
    /// It was there already.
    pub was_there: bool,
}
