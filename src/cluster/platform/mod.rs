//! Clusters on platforms: a few objects, which the platform turns into nodes.

mod consent;
mod goal;
mod on_platform;
mod preparation;
mod status;
mod substrate;
mod verify;

use super::substrate::{Opening, Substrate};
use crate::error::Result;
use on_platform::OnPlatform;

/// Opens a cluster on a platform.
///
/// # Errors
/// If the spec has what clusters on platforms do not have, or what it sends cannot be read.
pub(super) fn open(opening: &Opening<'_>) -> Result<Box<dyn Substrate>> {
    Ok(Box::new(OnPlatform::open(opening)?))
}

/// The objects of a spec as documents for another tool, without secrets.
///
/// # Errors
/// As for [`open`], and if the platform does not answer where its answer is needed.
pub(super) async fn manifest(opening: &Opening<'_>) -> Result<String> {
    let mut on = OnPlatform::open(opening)?;
    on.complete_request().await?;
    on.platform()?.manifest(on.scope(), &on.request)
}
