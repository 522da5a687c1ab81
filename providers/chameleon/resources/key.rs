//! The key pair of a cluster: generated on this machine, its public key registered at the site under our tag.

use super::ChameleonResource;
use crate::chameleon::api::{FailureKind, KeyPair};
use crate::chameleon::cloud::Cloud;
use crate::error::{Error, LeftBehind, Result};
use crate::name::Tag;
use crate::provider::{Acquired, ObservedResource};
use crate::secret::ensure_key_pair;

/// The name of the login key pair in the cluster's state folder.
pub(super) const LOGIN: &str = "login";

/// The resource of a tagged key pair.
pub(super) fn observed(pair: &KeyPair) -> Option<(Tag, ObservedResource)> {
    let tag: Tag = pair.name.parse().ok()?;
    let resource = ObservedResource::existing(tag.key.clone(), ChameleonResource::KeyPair.name(), &pair.name);
    Some((tag, resource))
}

/// Registers the public key, or finds it; a registered key whose private key is lost is replaced.
pub(super) async fn acquire(cloud: &Cloud, tag: &Tag) -> Result<Acquired> {
    let site = cloud.site().await?;
    let name = tag.to_string();
    let own = ensure_key_pair(&cloud.folder(&tag.cluster), LOGIN)?;
    let there = |pairs: Vec<KeyPair>| pairs.into_iter().find(|pair| pair.name == name);
    let is_ours = |pair: &KeyPair| pair.public_key.split_whitespace().take(2).eq(own.public.split_whitespace());
    match there(site.key_pairs().await?) {
        Some(pair) if is_ours(&pair) => return Ok(Acquired { id: name, was_there: true }),
        Some(_) => site.delete_key_pair(&name).await?,
        None => {}
    }
    match site.create_key_pair(&name, &own.public).await {
        Ok(()) => Ok(Acquired { id: name, was_there: false }),
        // The response was lost, or another call of ours created it.
        Err(failure) => match there(site.key_pairs().await?) {
            Some(pair) if is_ours(&pair) => {
                Ok(Acquired { id: name.clone(), was_there: failure.kind == FailureKind::NameTaken })
            }
            _ => Err(failure.into()),
        },
    }
}

/// Deletes the key pair.
pub(super) async fn release(cloud: &Cloud, id: &str) -> Result<()> {
    let site = cloud.site().await?;
    match site.delete_key_pair(id).await {
        Ok(()) => Ok(()),
        Err(failure) => match site.key_pairs().await?.iter().any(|pair| pair.name == id) {
            false => Ok(()),
            true => Err(Error::from(failure).left(LeftBehind::Remaining(vec![id.to_owned()]))),
        },
    }
}
