//! The SSH key of a cluster: generated on this machine, its public key added to the account under our tag.

use super::{Named, made};
use crate::error::Result;
use crate::lambda::api::SshKey;
use crate::lambda::cloud::{Age, Cloud};
use crate::name::Tag;
use crate::provider::Acquired;
use crate::secret::ensure_key_pair;

/// The name of the login key pair in the cluster's state folder.
pub(super) const LOGIN: &str = "login";

/// Adds the public key, or finds it; an added key whose private key is lost is replaced.
pub(super) async fn acquire(cloud: &Cloud, tag: &Tag) -> Result<Acquired> {
    let account = cloud.account()?;
    let name = tag.to_string();
    let own = ensure_key_pair(&cloud.folder(&tag.cluster), LOGIN)?;
    let keys = cloud.keys(Age::New).await?;
    let named: Vec<&SshKey> = keys.iter().filter(|key| key.name == name).collect();
    if let Some(key) = named.iter().find(|key| key.is(&own.public)) {
        return Ok(Acquired { id: key.id.clone(), was_there: true });
    }
    for lost in named {
        // A launch selects a key by name, so names must be unique.
        account.delete_ssh_key(&lost.id).await?;
        cloud.changed();
    }
    let added = account.add_ssh_key(&name, &own.public).await;
    cloud.changed();
    made(cloud, &Named::Key(&name, &own.public), added.map(|key| key.id)).await
}
