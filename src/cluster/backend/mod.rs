//! What runs a cluster's nodes, by the kind of its provider.

mod contract;
mod hosts;

use contract::Backend;
pub use hosts::HostConnector;

use crate::error::{Error, ErrorKind, Result};
use crate::provider::ProviderKind;
use crate::providers;
use crate::spec::Spec;
use hosts::Hosts;

/// What runs the nodes of a spec's cluster.
///
/// # Errors
/// When its provider is unknown, or of a kind that nothing here runs yet.
pub(super) fn of(spec: &Spec) -> Result<&'static dyn Backend> {
    let name = spec.provider.name();
    match providers::find(name)?.capability().kind {
        ProviderKind::Host => Ok(&Hosts),
        ProviderKind::Platform => Err(Error::new(ErrorKind::Unsupported, format!("use the provider `{name}`"))
            .because("it is a platform, and nothing here runs a cluster on one yet")),
    }
}
