//! `verify`: all checks of a cluster once more.

use super::backend;
use super::errors::{not_running, unknown};
use super::machine::refuse_other_machine;
use crate::cluster::outcome::Verified;
use crate::cluster::settings::Settings;
use crate::error::Result;
use crate::name::ClusterName;
use crate::ray::Access;
use crate::state::{ClusterState, Lock, Store};

/// Runs all checks.
pub async fn verify(settings: &Settings, name: &ClusterName) -> Result<Verified> {
    let _lock = Lock::take(&settings.paths, name, "verify")?;
    let store = Store::open(&settings.paths, name)?.ok_or_else(|| unknown(&settings.paths, name))?;
    refuse_other_machine(&settings.paths, store.state(), "verify")?;
    let spec = store.state().running_spec().cloned().ok_or_else(|| unknown(&settings.paths, name))?;
    backend::of(&spec)?.verify(settings, &spec, store).await
}

/// The addresses of a running cluster, from its state. For hosts reached by SSH they work while `gpucl dashboard` runs.
pub fn access(settings_paths: &crate::state::Paths, state: &ClusterState) -> Result<Access> {
    let folder = settings_paths.cluster(&state.name);
    let access = state.spec.as_ref().map(backend::of).transpose()?.and_then(|backend| backend.access(state, &folder));
    access.ok_or_else(|| not_running(state))
}
