//! The floating IP of a cluster's head: one of our own, with our tag in its description from the call that makes it.

use std::time::{Duration, Instant};

use super::Kind;
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::name::{Key, Tag};
use crate::provider::{Acquired, ObservedResource, ResourceKind, ResourceRequest};
use crate::providers::chameleon::api::{Effect, FailureKind, FloatingIp, Site};
use crate::providers::chameleon::cloud::Cloud;

/// How long an address that was made may be missing from the list.
const SHOWS_WITHIN: Duration = Duration::from_secs(5);

/// An address as a resource under this key.
pub(super) fn as_resource(address: &FloatingIp, key: &Key) -> ObservedResource {
    ObservedResource {
        key: key.clone(),
        kind: ResourceKind(Kind::FloatingIp.name().to_owned()),
        id: address.id.clone(),
        usable: true,
        coming: false,
        adopted: false,
        until: None,
        detail: address.address.clone(),
    }
}

/// An address that carries a tag.
pub(super) fn observed(address: &FloatingIp) -> Option<(Tag, ObservedResource)> {
    let tag: Tag = address.description.parse().ok()?;
    let resource = as_resource(address, &tag.key);
    Some((tag, resource))
}

async fn tagged(site: &Site, tag: &Tag) -> Result<Option<FloatingIp>> {
    let text = tag.to_string();
    Ok(site.floating_ips().await?.into_iter().find(|address| address.description == text))
}

/// Makes the address of this tag, or finds it.
pub(super) async fn acquire(cloud: &Cloud, tag: &Tag, request: &ResourceRequest) -> Result<Acquired> {
    let site = cloud.site().await?;
    if let Some(address) = tagged(site, tag).await? {
        return Ok(Acquired { id: address.id, was_there: true });
    }
    let network = match request.found["public"].as_str() {
        Some(id) => id.to_owned(),
        None => {
            let name = cloud.settings.public_network();
            let networks = site.networks(name).await?;
            networks.into_iter().next().map(|network| network.id).ok_or_else(|| {
                Error::new(ErrorKind::Provider, format!("find the network {name}"))
                    .because("the site has none of that name")
            })?
        }
    };
    let failure = match site.create_floating_ip(&network, &tag.to_string()).await {
        Ok(address) => return Ok(Acquired { id: address.id, was_there: false }),
        Err(failure) => failure,
    };
    if failure.effect == Effect::Unknown {
        let begun = Instant::now();
        loop {
            let is_last = begun.elapsed() >= SHOWS_WITHIN;
            if let Some(address) = tagged(site, tag).await? {
                return Ok(Acquired { id: address.id, was_there: false });
            }
            if is_last {
                return Err(Error::from(failure).left(LeftBehind::Unknown));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    let none_left = matches!(failure.kind, FailureKind::NotEnough | FailureKind::Quota | FailureKind::NameTaken);
    let error = Error::from(failure);
    if !none_left {
        return Err(error);
    }
    let idle: Vec<String> = site
        .floating_ips()
        .await
        .unwrap_or_default()
        .into_iter()
        .filter(|address| address.port_id.is_none())
        .map(|address| address.address)
        .collect();
    Err(match idle.is_empty() {
        true => error
            .because("no floating IP is left for the project")
            .hint("release one that is not in use, or ask for a higher quota"),
        false => error
            .because(format!("no floating IP is left; the project has some that are not in use: {}", idle.join(", ")))
            .hint(format!(
                "if one of them is yours: `provider: {{name: chameleon, floating_ip: {}}}`; gpucl takes none by itself",
                idle[0]
            )),
    })
}

/// Gives it back.
pub(super) async fn release(cloud: &Cloud, id: &str) -> Result<()> {
    let site = cloud.site().await?;
    match site.delete_floating_ip(id).await {
        Ok(()) => Ok(()),
        Err(failure) => match site.floating_ips().await?.iter().any(|address| address.id == id) {
            false => Ok(()),
            true => Err(Error::from(failure).left(LeftBehind::Remaining(vec![id.to_owned()]))),
        },
    }
}
