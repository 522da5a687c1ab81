//! How an id reaches the journal before the call that made it returns.

use async_trait::async_trait;

use crate::error::{LeftBehind, Result};
use crate::name::{Key, Tag};

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

impl Acquired {
    /// Hands it back once its id is safe, or says what is left behind; `what` is what exists now.
    ///
    /// # Errors
    /// When the recorder fails.
    pub async fn recorded(self, recorder: &dyn Recorder, tag: &Tag, what: &str) -> Result<Self> {
        match recorder.exists(&tag.key, &self.id).await {
            Ok(()) => Ok(self),
            Err(error) => Err(error
                .while_doing(format!("write down that {what} exists"))
                .left(LeftBehind::Remaining(vec![self.id]))),
        }
    }
}
