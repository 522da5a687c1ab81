//! `plan`: what `up` would do. Read-only.

use super::pin::{Pins, pinned};
use super::{Planned, Settings, backend};
use crate::error::Result;
use crate::spec::Loaded;
use crate::state::Store;

/// Works out what `up` would do with this spec.
pub async fn plan(settings: &Settings, loaded: &Loaded) -> Result<Planned> {
    let store = Store::open(&settings.paths, &loaded.spec.name)?;
    let loaded = pinned(loaded, store.as_ref().and_then(|store| store.state().spec.as_ref()), Pins::Keep).await?;
    backend::of(&loaded.spec)?.plan(settings, &loaded, store).await
}
