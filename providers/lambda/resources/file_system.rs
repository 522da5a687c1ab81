//! File systems created for a cluster. One that is deleted with the cluster is named by our tag; one that is kept has
//! the name from the spec, and belongs to the user from then on.

use super::{Named, find, made};
use crate::error::Result;
use crate::lambda::cloud::{Age, Cloud};
use crate::name::Tag;
use crate::provider::{Acquired, ResourceRequest};

/// Its name in the account.
fn name_of(tag: &Tag, request: &ResourceRequest) -> String {
    match (request.settings["keep"].as_bool(), request.settings["name"].as_str()) {
        (Some(true), Some(name)) => name.to_owned(),
        _ => tag.to_string(),
    }
}

/// Creates the file system, or finds it.
pub(super) async fn acquire(cloud: &Cloud, tag: &Tag, request: &ResourceRequest) -> Result<Acquired> {
    let account = cloud.account()?;
    let name = name_of(tag, request);
    let region = request.settings["region"].as_str().unwrap_or_default();
    let named = Named::FileSystem(&name, region);
    if let Some(id) = find(cloud, &named).await? {
        return Ok(Acquired { id, was_there: true });
    }
    let answer = account.create_file_system(&name, region).await;
    cloud.changed();
    made(cloud, &named, answer.map(|file| file.id)).await
}

/// Finds the id of a created file system by its tag or, if kept, by its name.
pub(super) async fn id_of(cloud: &Cloud, tag: &Tag, name: &str, keep: bool, region: &str) -> Result<Option<String>> {
    let wanted = if keep { name.to_owned() } else { tag.to_string() };
    let files = cloud.file_systems(Age::Fresh).await?;
    Ok(files.iter().find(|one| one.name == wanted && one.region.name == region).map(|one| one.id.clone()))
}
