//! The floating IP of a cluster's head, tagged in its description by the call that creates it.
//!
//! The service reports neither who made a floating IP nor who wrote its description, and every project member may do
//! both. So it also carries a mark that only this user can make: first one for its tag, then, once its id is known, one
//! that is valid for this floating IP only.

use super::{ChameleonResource, LISTS};
use crate::chameleon::api::{Effect, FailureKind, FloatingIp, Server, Who};
use crate::chameleon::cloud::{Cloud, tag_of_server};
use crate::chameleon::found::SharedFound;
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::name::{Key, Tag};
use crate::provider::{Acquired, ObservedResource, ResourceRequest};
use crate::secret::Marks;

/// The prefix of the Neutron tag that seals a floating IP as ours.
const SEAL: &str = "gpucl:";

/// Turns a floating IP into a resource under this key.
pub(super) fn as_resource(address: &FloatingIp, key: &Key) -> ObservedResource {
    ObservedResource {
        detail: address.address.clone(),
        ..ObservedResource::existing(key.clone(), ChameleonResource::FloatingIp.name(), &address.id)
    }
}

/// The ownership of a tagged floating IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// We made it.
    Ours,
    /// It is not attached, and only its description claims that it is ours: any project member can write one.
    Unproven,
    /// It belongs to another project, or is attached to a server that is not ours.
    Foreign,
}

/// The tag at the end of a floating IP's description.
pub(super) fn tag_of(address: &FloatingIp) -> Option<Tag> {
    address.description.rsplit(' ').next()?.parse().ok()
}

/// The mark set by the creating call, when the id is not known yet.
fn first_mark(marks: &Marks, tag: &Tag) -> String {
    marks.of(&["address", &tag.to_string()])
}

/// The mark that is bound to this id, and invalid on any other floating IP.
fn seal_of(marks: &Marks, tag: &Tag, id: &str) -> String {
    format!("{SEAL}{}", marks.of(&["address", &tag.to_string(), id]))
}

/// Determines the ownership: the service does not report the creator, and lets every project member edit descriptions.
pub(super) fn whose(address: &FloatingIp, tag: &Tag, who: &Who, servers: &[Server], marks: Option<&Marks>) -> Whose {
    if !address.project_id.is_empty() && address.project_id != who.project_id {
        return Whose::Foreign;
    }
    let is_sealed = marks.is_some_and(|marks| address.tags.contains(&seal_of(marks, tag, &address.id)));
    if address.port_id.is_some() {
        let leads_to = |server: &&Server| match (&address.device, &address.fixed) {
            (Some(device), _) => server.id == *device,
            (None, fixed) => server.fixed_ips().any(|ip| Some(ip) == fixed.as_deref()),
        };
        let is_ours = |server: &Server| {
            server.user_id == who.user_id && tag_of_server(server).is_some_and(|other| other.owner == tag.owner)
        };
        return match servers.iter().find(leads_to) {
            Some(server) if is_ours(server) => Whose::Ours,
            // Its server was just deleted.
            None if is_sealed => Whose::Ours,
            _ => Whose::Foreign,
        };
    }
    let is_first = || {
        let first = address.description.split_once(' ').map(|(first, _)| first.to_owned());
        let has_seal = address.tags.iter().any(|text| text.starts_with(SEAL));
        !has_seal && marks.is_some_and(|marks| first == Some(first_mark(marks, tag)))
    };
    if is_sealed || is_first() { Whose::Ours } else { Whose::Unproven }
}

/// Warns about a tagged floating IP that is left alone, and why.
pub(super) fn warn_about(cloud: &Cloud, address: &FloatingIp, tag: &Tag, whose: Whose) {
    let FloatingIp { address, id, .. } = address;
    let text = match whose {
        Whose::Ours => return,
        Whose::Unproven => format!(
            "the floating IP {address} carries the tag {tag}, but nothing shows that you made it: it is left alone. If it is yours: \
             gpucl gc --provider chameleon --id {id}"
        ),
        Whose::Foreign => {
            format!(
                "the floating IP {address} carries the tag {tag}, but leads to a server that is not yours: it is left alone"
            )
        }
    };
    cloud.warn_once(text);
}

/// Finds our floating IP with this tag.
pub(super) async fn own(cloud: &Cloud, tag: &Tag) -> Result<Option<FloatingIp>> {
    let site = cloud.site().await?;
    let (who, addresses, servers) = tokio::try_join!(site.who(), site.floating_ips(), site.servers())?;
    let marks = Marks::known(&cloud.context.user_environment.config_dir)?;
    let is_own = |address: &FloatingIp| {
        tag_of(address).as_ref() == Some(tag) && whose(address, tag, &who, &servers, marks.as_ref()) == Whose::Ours
    };
    Ok(addresses.into_iter().find(is_own))
}

/// Seals a floating IP as ours by its id; from then on its description alone proves nothing. Idempotent.
pub(super) async fn seal(cloud: &Cloud, tag: &Tag, id: &str) -> Result<()> {
    let site = cloud.site().await?;
    let seal = seal_of(&Marks::ensure(&cloud.context.user_environment.config_dir)?, tag, id);
    let addresses = site.floating_ips().await?;
    let mut tags = addresses.into_iter().find(|address| address.id == id).map(|one| one.tags).unwrap_or_default();
    if tags.contains(&seal) {
        return Ok(());
    }
    tags.retain(|text| !text.starts_with(SEAL));
    tags.push(seal);
    // On failure the first mark stays valid, and sealing is retried when the server gets its floating IP.
    if let Err(failure) = site.tag_floating_ip(id, &tags).await {
        cloud.context.events.note(format!("failed to mark the floating IP {id} as ours: {}", failure.text));
    }
    Ok(())
}

/// Allocates the floating IP of this tag, or finds it.
pub(super) async fn acquire(cloud: &Cloud, tag: &Tag, request: &ResourceRequest) -> Result<Acquired> {
    let site = cloud.site().await?;
    if let Some(address) = own(cloud, tag).await? {
        return Ok(Acquired { id: address.id, was_there: true });
    }
    let network = match request.found.read::<SharedFound>()?.and_then(|found| found.public) {
        Some(id) => id,
        None => {
            let name = cloud.settings.public_network();
            let networks = site.networks(name).await?;
            networks.into_iter().next().map(|network| network.id).ok_or_else(|| {
                Error::new(ErrorKind::Provider, format!("find the network {name}"))
                    .because("the site has no network of that name")
            })?
        }
    };
    let marks = Marks::ensure(&cloud.context.user_environment.config_dir)?;
    let description = format!("{} {tag}", first_mark(&marks, tag));
    let failure = match site.create_floating_ip(&network, &description).await {
        Ok(address) => return Ok(Acquired { id: address.id, was_there: false }),
        Err(failure) => failure,
    };
    if failure.effect == Effect::Unknown {
        let find = || async { Ok(own(cloud, tag).await?.map(|address| address.id)) };
        return LISTS.find_made(failure, find).await;
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
                "if one of them is yours: `provider: {{name: chameleon, floating_ip: {}}}`; none is taken unasked",
                idle[0]
            )),
    })
}

/// Releases a floating IP, unless it is attached to a server that is not ours.
pub(super) async fn release(cloud: &Cloud, id: &str) -> Result<()> {
    let site = cloud.site().await?;
    let left = || LeftBehind::Remaining(vec![id.to_owned()]);
    let Some(address) = site.floating_ips().await?.into_iter().find(|address| address.id == id) else { return Ok(()) };
    if let (Some(_), Some(device)) = (&address.port_id, &address.device) {
        let (who, user) = tokio::try_join!(site.who(), site.server(device))?;
        if user.is_some_and(|server| server.user_id != who.user_id || tag_of_server(&server).is_none()) {
            return Err(Error::new(ErrorKind::Provider, format!("release the floating IP {}", address.address))
                .because(format!("it leads to the server {device}, which is not yours"))
                .left(left())
                .hint(
                    "find out whose server that is; once the floating IP is detached, the same command releases it",
                ));
        }
    }
    match site.delete_floating_ip(id).await {
        Ok(()) => Ok(()),
        Err(failure) => match site.floating_ips().await?.iter().any(|address| address.id == id) {
            false => Ok(()),
            true => Err(Error::from(failure).left(left())),
        },
    }
}
