//! `plan`: what `up` would do. Reads, writes nothing.

use super::{HostTouches, Settings, backend};
use crate::error::Result;
use crate::plan::Plan;
use crate::spec::Loaded;
use crate::state::Store;

/// What `up` would do.
#[derive(Debug)]
pub struct Planned {
    /// The operations.
    pub plan: Plan,
    /// What they touch on hosts.
    pub touches: Vec<HostTouches>,
    /// What else there is to know before.
    pub notes: Vec<String>,
}

/// Works out what `up` would do with this spec.
pub async fn plan(settings: &Settings, loaded: &Loaded) -> Result<Planned> {
    let store = Store::open(&settings.paths, &loaded.spec.name)?;
    backend::of(&loaded.spec)?.plan(settings, loaded, store).await
}
