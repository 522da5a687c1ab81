//! `plan`: what `up` would do. Read-only.

use super::{Planned, Settings, backend};
use crate::error::Result;
use crate::spec::Loaded;
use crate::state::Store;

/// Works out what `up` would do with this spec.
pub async fn plan(settings: &Settings, loaded: &Loaded) -> Result<Planned> {
    let store = Store::open(&settings.paths, &loaded.spec.name)?;
    backend::of(&loaded.spec)?.plan(settings, loaded, store).await
}
