//! `stop`: ends Ray and keeps the hosts.

use super::backend;
use super::errors::unknown;
use super::machine::refuse_other_machine;
use crate::cluster::settings::Settings;
use crate::error::Result;
use crate::name::ClusterName;
use crate::state::{Lock, Store};

/// Ends all nodes and returns the resources that are kept.
pub async fn stop(settings: &Settings, name: &ClusterName) -> Result<Vec<String>> {
    let _lock = Lock::take(&settings.paths, name, "stop")?;
    let store = Store::open(&settings.paths, name)?.ok_or_else(|| unknown(&settings.paths, name))?;
    refuse_other_machine(&settings.paths, store.state(), "stop")?;
    let spec = store.state().spec.clone().ok_or_else(|| unknown(&settings.paths, name))?;
    backend::of(&spec)?.stop(settings, &spec, store).await
}
