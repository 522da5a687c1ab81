//! Backends run a cluster's nodes; the kind of its provider selects one.

use super::contract::Backend;

use super::hosts::Hosts;
use super::platform::{self, OnPlatform};
use crate::cluster::settings::Settings;
use crate::error::Result;
use crate::provider::ProviderKind;
use crate::providers;
use crate::spec::{Loaded, Spec};

/// Returns the backend for a spec's provider.
///
/// # Errors
/// When the provider is unknown.
pub(super) fn of(spec: &Spec) -> Result<&'static dyn Backend> {
    let name = spec.provider.name();
    match providers::find(name)?.capability().kind {
        ProviderKind::Host => Ok(&Hosts),
        ProviderKind::Platform => Ok(&OnPlatform),
    }
}

/// The objects of a cluster as documents for another tool; `None` if it runs on hosts.
pub(super) async fn manifest(settings: &Settings, loaded: &Loaded) -> Result<Option<String>> {
    match providers::find(loaded.spec.provider.name())?.capability().kind {
        ProviderKind::Host => Ok(None),
        ProviderKind::Platform => platform::manifest(settings, loaded).await.map(Some),
    }
}
