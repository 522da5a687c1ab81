//! Recording an id in the journal before the call that created the resource returns.

use async_trait::async_trait;

use crate::error::{LeftBehind, Result};
use crate::name::{Key, Tag};

/// Records ids durably: when a call returns, the id is on disk.
#[async_trait]
pub trait Recorder: Send + Sync {
    /// Records that the resource with this key exists under this id.
    async fn exists(&self, key: &Key, id: &str) -> Result<()>;
}

/// The result of `acquire`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquired {
    /// The provider's id.
    pub id: String,
    /// The resource existed before the call.
    pub was_there: bool,
}

impl Acquired {
    /// Returns itself once its id is recorded; `what` describes the resource in errors.
    ///
    /// # Errors
    /// If the recorder fails; the error says that the resource is left behind.
    pub async fn recorded(self, recorder: &dyn Recorder, tag: &Tag, what: &str) -> Result<Self> {
        match recorder.exists(&tag.key, &self.id).await {
            Ok(()) => Ok(self),
            Err(error) => {
                Err(error.while_doing(format!("record that {what} exists")).left(LeftBehind::Remaining(vec![self.id])))
            }
        }
    }
}
