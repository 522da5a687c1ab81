//! Opens what a cluster runs on: the kind of its provider decides.

use super::substrate::{Opening, Substrate};
use super::{hosts, platform};
use crate::error::Result;
use crate::provider::ProviderKind;
use crate::providers;
use crate::spec::Spec;

/// The kind of a spec's provider.
///
/// # Errors
/// When the provider is unknown.
pub(super) fn kind_of(spec: &Spec) -> Result<ProviderKind> {
    Ok(providers::find(spec.provider.name())?.capability().kind)
}

/// Opens the substrate of a cluster. Nothing is connected and nothing is asked yet.
///
/// # Errors
/// When the provider is unknown, or the spec has what its kind does not have.
pub(super) fn open(opening: &Opening<'_>) -> Result<Box<dyn Substrate>> {
    match kind_of(opening.spec)? {
        ProviderKind::Host => hosts::open(opening),
        ProviderKind::Platform => platform::open(opening),
    }
}
