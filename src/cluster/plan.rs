//! `plan`: what `up` would do. Read-only.

use super::backend;
use super::machine::refuse_other_machine;
use super::pin::{Pins, pinned};
use crate::cluster::outcome::Planned;
use crate::cluster::settings::Settings;
use crate::error::Result;
use crate::spec::Loaded;
use crate::state::Store;

/// Works out what `up` would do with this spec. Unless `may_look_up`, no server is asked for the commits of repositories.
pub async fn plan(settings: &Settings, loaded: &Loaded, may_look_up: bool) -> Result<Planned> {
    let pins = if may_look_up { Pins::Keep } else { Pins::Known };
    let store = Store::open(&settings.paths, &loaded.spec.name)?;
    if let Some(store) = &store {
        refuse_other_machine(&settings.paths, store.state(), "plan")?;
    }
    let loaded = pinned(loaded, store.as_ref().and_then(|store| store.state().spec.as_ref()), pins).await?;
    backend::of(&loaded.spec)?.plan(settings, &loaded, store).await
}
