//! Opens the world of a cluster.

use std::path::Path;
use std::sync::Arc;

use super::HostConnections;
use super::world::{ProjectWorld, ProjectWorldConfig, Purpose};
use crate::cluster::local_files::LocalFiles;
use crate::cluster::settings::Settings;
use crate::error::Result;
use crate::runtime::project;
use crate::secret::Secrets;
use crate::spec::Spec;
use crate::state::Store;

/// Opens the world of a cluster that has state.
pub(super) fn open_world(settings: &Settings, spec: &Spec, store: &Store, purpose: Purpose) -> Result<ProjectWorld> {
    world(settings, spec, store.folder(), secrets(spec, store.folder())?, purpose, None)
}

/// The cluster's credentials; missing ones are generated.
pub(super) fn secrets(spec: &Spec, folder: &Path) -> Result<Secrets> {
    match project::of(spec.runtime).has_services() || spec.own_store().is_some() {
        true => crate::secret::ensure_secrets(folder),
        false => Ok(Secrets::of_ray(crate::secret::ensure_ray_token(folder)?)),
    }
}

/// Opens the world of a spec, whose state and credentials are in this folder.
pub(super) fn world(
    settings: &Settings,
    spec: &Spec,
    folder: &Path,
    secrets: Secrets,
    purpose: Purpose,
    files: Option<Vec<LocalFiles>>,
) -> Result<ProjectWorld> {
    let connector = HostConnections::new(folder, spec.runtime, settings);
    Ok(ProjectWorld::new(ProjectWorldConfig {
        scope: settings.scope(&spec.name),
        spec: spec.clone(),
        provider: settings.provider(spec)?,
        connector: Arc::new(connector),
        library: settings.library.clone(),
        paths: settings.paths.clone(),
        secrets,
        files,
        purpose,
        events: settings.events.clone(),
        cancel: settings.cancel.clone(),
    }))
}
