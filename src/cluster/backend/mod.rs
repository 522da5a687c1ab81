//! Backends run a cluster's nodes; the kind of its provider selects one.

mod contract;
mod hosts;

use contract::Backend;
pub use hosts::HostConnector;

use crate::error::{Error, ErrorKind, Result};
use crate::provider::ProviderKind;
use crate::providers;
use crate::spec::Spec;
use hosts::Hosts;

/// Returns the backend for a spec's provider.
///
/// # Errors
/// When the provider is unknown, or of a kind that is not supported yet.
pub(super) fn of(spec: &Spec) -> Result<&'static dyn Backend> {
    let name = spec.provider.name();
    match providers::find(name)?.capability().kind {
        ProviderKind::Host => Ok(&Hosts),
        ProviderKind::Platform => Err(Error::new(ErrorKind::Unsupported, format!("use the provider `{name}`"))
            .because("it is a platform, and clusters on platforms are not supported yet")),
    }
}
