//! Backends run a cluster's nodes; the kind of its provider selects one.

mod checks;
mod contract;
mod hosts;
mod platform;

use contract::Backend;
pub use hosts::HostConnector;

use crate::error::Result;
use crate::provider::ProviderKind;
use crate::providers;
use crate::spec::Spec;
use hosts::Hosts;
use platform::OnPlatform;

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
