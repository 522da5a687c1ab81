//! Servers on bare metal: created once per tag, awaited until active, located for SSH, deleted and verified as gone.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::key::LOGIN;
use super::{ChameleonResource, LISTS, address, address_key, lease_key};
use crate::chameleon::api::{Effect, FloatingIp, Lease, NewServer, Server, Site};
use crate::chameleon::cloud::{Cloud, TAG, tag_of_server};
use crate::chameleon::found::{HostFound, LeaseFound};
use crate::chameleon::leases::{state_of, tag_of, title};
use crate::chameleon::resolve::resolve;
use crate::error::{Error, ErrorKind, LeftBehind, Result, Status};
use crate::event::EventKind;
use crate::host::SshTarget;
use crate::name::{Key, Scope, Tag};
use crate::provider::{
    Acquired, HostPlace, HostRequest, LeaseState, ObservedResource, Outage, ResourceRequest, ResourceState,
};
use crate::secret::{ensure_key_pair, key_pair, public_key};
use crate::util::when;

/// How long a server may take to become active. Bare metal usually takes 10 to 20 minutes; 30 were observed.
const BUILD_LIMIT: Duration = Duration::from_secs(45 * 60);
/// How long deleting a server may take.
const END_LIMIT: Duration = Duration::from_secs(15 * 60);

/// The resource of a tagged server.
pub(super) fn observed(server: &Server, addresses: &[FloatingIp]) -> Option<(Tag, ObservedResource)> {
    let tag = tag_of_server(server)?;
    let has_address = tag.key != Key::host(0) || public_ip(server, addresses).is_some();
    let state = match server.status.as_str() {
        "ACTIVE" if has_address => ResourceState::Usable,
        "ACTIVE" | "BUILD" | "REBUILD" | "REBOOT" | "HARD_REBOOT" | "UNKNOWN" => ResourceState::Coming,
        _ => ResourceState::Unusable,
    };
    let detail = match (server.status.as_str(), &server.fault) {
        ("ACTIVE", _) if !has_address => "it has no address yet".to_owned(),
        ("ACTIVE", _) => String::new(),
        ("ERROR", fault) => describe_fault(fault.as_deref()),
        (status, _) => format!("it is {}", status.to_lowercase()),
    };
    let resource = ObservedResource {
        state,
        detail,
        ..ObservedResource::existing(tag.key.clone(), ChameleonResource::Server.name(), &server.id)
    };
    Some((tag, resource))
}

/// Describes a fault and its usual cause.
fn describe_fault(fault: Option<&str>) -> String {
    let fault = fault.unwrap_or("the service does not say why").trim_end_matches('.');
    let meaning = if fault.contains("No valid host") {
        ": the host of the lease is in use or failed, or the lease is not active"
    } else if fault.contains("deploy") || fault.contains("provision") {
        ": the machine did not boot its image"
    } else {
        ""
    };
    format!("it is in error: {fault}{meaning}")
}

fn public_ip(server: &Server, addresses: &[FloatingIp]) -> Option<String> {
    let fixed: Vec<&str> = server.fixed_ips().collect();
    let listed = server.addresses.iter().find(|address| address.floating).map(|address| address.ip.clone());
    listed.or_else(|| {
        let own = |address: &&FloatingIp| address.fixed.as_deref().is_some_and(|ip| fixed.contains(&ip));
        addresses.iter().find(own).map(|address| address.address.clone())
    })
}

async fn tagged(site: &Site, tag: &Tag) -> Result<Option<Server>> {
    let (who, servers) = tokio::try_join!(site.who(), site.servers())?;
    let text = tag.to_string();
    let is_it = |server: &Server| server.user_id == who.user_id && server.metadata.get(TAG) == Some(&text);
    Ok(servers.into_iter().find(is_it))
}

/// Finds the lease to boot a server on.
async fn lease_of(site: &Site, tag: &Tag, found: &HostFound) -> Result<Lease> {
    let lease = match &found.lease {
        LeaseFound::Own { id } | LeaseFound::Adopted { id } => site.lease(id).await?,
        LeaseFound::New { .. } => {
            let scope = Scope { owner: tag.owner.clone(), cluster: tag.cluster.clone() };
            let wanted = scope.tag(&lease_key());
            let (who, leases) = tokio::try_join!(site.who(), site.leases())?;
            leases.into_iter().find(|lease| {
                let state = state_of(lease);
                lease.user_id == who.user_id && tag_of(lease).as_ref() == Some(&wanted) && state != LeaseState::Ended
            })
        }
    };
    lease.ok_or_else(|| {
        Error::new(ErrorKind::Provider, format!("find the lease of {tag}"))
            .because("it no longer exists: it ended, or somebody deleted it")
            .hint("gpucl lease list --all")
    })
}

/// Creates the server of this tag, or finds it.
pub(super) async fn acquire(cloud: &Cloud, tag: &Tag, request: &ResourceRequest) -> Result<Acquired> {
    let site = cloud.site().await?;
    if let Some(server) = tagged(site, tag).await? {
        return Ok(Acquired { id: server.id, was_there: true });
    }
    let found = match request.found.read::<HostFound>()? {
        Some(found) => found,
        None => find(cloud, tag, request).await?,
    };
    let lease = lease_of(site, tag, &found).await?;
    // The scheduler would only answer "No valid host".
    if state_of(&lease) == LeaseState::Ended {
        let when = when::both(lease.end, &cloud.zone());
        return Err(Error::new(ErrorKind::Provider, format!("boot {}", tag.key.display_name()))
            .because(format!("the lease {} ended at {when}", title(&lease)))
            .hint(format!("gpucl lease --node {} --hours 3   # then up again", found.node)));
    }
    let named =
        lease.reservations.iter().find(|one| one.is_host() && one.asked("node_name").as_deref() == Some(&found.node));
    let reservation = match named {
        Some(one) => Some(one.id.clone()),
        None => cloud.calendar_now(&[]).await?.reservation_of(&lease, &found.node),
    };
    let reservation = reservation.ok_or_else(|| {
        Error::new(ErrorKind::Provider, format!("boot {} on the lease {}", found.node, title(&lease)))
            .because("the lease does not include that host")
    })?;
    let folder = cloud.folder(&tag.cluster);
    let scope = Scope { owner: tag.owner.clone(), cluster: tag.cluster.clone() };
    let new = NewServer {
        name: tag.to_string(),
        image: found.image,
        flavor: found.flavor,
        network: found.network,
        key_name: Some(scope.tag(&super::shared("key")).to_string()),
        user_data: Some(ensure_key_pair(&folder, tag.key.as_str())?.cloud_config()?),
        reservation,
        metadata: BTreeMap::from([(TAG.to_owned(), tag.to_string()), ("gpucl_lease".to_owned(), lease.id)]),
    };
    let failure = match site.create_server(&new).await {
        Ok(id) => return Ok(Acquired { id, was_there: false }),
        Err(failure) => failure,
    };
    if failure.effect == Effect::Unknown {
        let find = || async { Ok(tagged(site, tag).await?.map(|server| server.id)) };
        return LISTS.find_made(failure, find).await;
    }
    Err(failure.into())
}

/// Resolves the request now, if that was not done before.
async fn find(cloud: &Cloud, tag: &Tag, request: &ResourceRequest) -> Result<HostFound> {
    let scope = Scope { owner: tag.owner.clone(), cluster: tag.cluster.clone() };
    let host = HostRequest::new(tag.key.clone(), request.settings["entry"].clone());
    let resolved = resolve(cloud, &scope, vec![host]).await?;
    let found = resolved.hosts.into_iter().next().map(|host| host.found).unwrap_or_default();
    found.read()?.ok_or_else(|| Error::new(ErrorKind::Internal, format!("resolve the host {tag}")))
}

/// Waits until a server is active, and attaches the head's floating IP.
pub(super) async fn wait_usable(cloud: &Cloud, tag: &Tag, request: &ResourceRequest, id: &str) -> Result<()> {
    let site = cloud.site().await?;
    let events = &cloud.context.events;
    let name = tag.key.display_name();
    let doing = || format!("boot {name}");
    let begun = Instant::now();
    let mut pause = Duration::from_millis(200);
    let mut reported = None;
    let mut outage = Outage::new(events);
    loop {
        let Some(answer) = outage.outlast(site.server(id).await, || begun.elapsed() > BUILD_LIMIT)? else {
            tokio::time::sleep(pause).await;
            continue;
        };
        let Some(server) = answer else {
            return Err(Error::new(ErrorKind::Provider, doing())
                .because("the server no longer exists: its lease ended, or somebody deleted it")
                .status(Status::Temporary));
        };
        match server.status.as_str() {
            "ACTIVE" => break,
            "ERROR" => {
                return Err(Error::new(ErrorKind::Provider, doing())
                    .because(describe_fault(server.fault.as_deref()))
                    .status(Status::Temporary)
                    .left(LeftBehind::Remaining(vec![id.to_owned()])));
            }
            "DELETED" | "SOFT_DELETED" | "SHUTOFF" | "SUSPENDED" => {
                return Err(Error::new(ErrorKind::Provider, doing())
                    .because(format!("the server is {}", server.status.to_lowercase()))
                    .status(Status::Temporary)
                    .left(LeftBehind::Remaining(vec![id.to_owned()])));
            }
            _ => {}
        }
        let stage = server.task.clone().unwrap_or_else(|| server.status.to_lowercase());
        if reported.as_ref() != Some(&stage) {
            let what = format!("{name} to boot ({stage}; bare metal usually takes 10 to 20 minutes)");
            let limit_milliseconds = u64::try_from(BUILD_LIMIT.as_millis()).unwrap_or(u64::MAX);
            events.send(EventKind::Waiting { what, limit_milliseconds });
            reported = Some(stage);
        }
        if begun.elapsed() > BUILD_LIMIT {
            return Err(Error::new(ErrorKind::Timeout, doing())
                .because(format!("it is still {} after {} minutes", server.status, BUILD_LIMIT.as_secs() / 60))
                .left(LeftBehind::Remaining(vec![id.to_owned()])));
        }
        tokio::time::sleep(pause).await;
        let longest = if begun.elapsed() < Duration::from_secs(60) { 1 } else { 5 };
        pause = (pause * 2).min(Duration::from_secs(longest));
    }
    match request.needs.contains(&address_key()) {
        true => give_address(cloud, tag, request, id).await,
        false => Ok(()),
    }
}

/// Attaches the head's floating IP. Idempotent.
async fn give_address(cloud: &Cloud, tag: &Tag, request: &ResourceRequest, id: &str) -> Result<()> {
    let site = cloud.site().await?;
    let doing = || format!("attach the floating IP of {}", tag.key.display_name());
    let scope = Scope { owner: tag.owner.clone(), cluster: tag.cluster.clone() };
    let wanted = scope.tag(&address_key());
    let named = request.found.read::<HostFound>()?.and_then(|found| found.address);
    let mut last = None;
    for attempt in 0..5_u64 {
        tokio::time::sleep(Duration::from_millis(500 * attempt)).await;
        let ports = site.ports(id).await?;
        let own = match &named {
            Some(id) => site.floating_ips().await?.into_iter().find(|address| address.id == *id),
            None => address::own(cloud, &wanted).await?,
        };
        let Some(own) = own else {
            return Err(Error::new(ErrorKind::Provider, doing()).because("it no longer exists"));
        };
        let Some(port) = ports.first() else { continue };
        match &own.port_id {
            Some(at) if *at == port.id => return Ok(()),
            Some(at) if named.is_some() => {
                return Err(Error::new(ErrorKind::Provider, doing())
                    .because(format!("{} is in use by another server (port {at})", own.address)));
            }
            _ => {}
        }
        if named.is_none() {
            // Sealing may have failed at creation; retry it before the floating IP is in use.
            address::seal(cloud, &wanted, &own.id).await?;
        }
        match site.associate(&own.id, Some(&port.id)).await {
            Ok(_) => return Ok(()),
            Err(failure) if failure.effect == Effect::Unknown => last = Some(failure),
            Err(failure) => return Err(failure.into()),
        }
    }
    Err(match last {
        Some(failure) => failure.into(),
        None => Error::new(ErrorKind::Timeout, doing()).because("the server has no port on the network yet"),
    })
}

/// Deletes a server, and waits until it is gone. Idempotent.
pub(super) async fn release(cloud: &Cloud, id: &str) -> Result<()> {
    let site = cloud.site().await?;
    let begun = Instant::now();
    let left = || LeftBehind::Remaining(vec![id.to_owned()]);
    let mut pause = Duration::from_millis(200);
    let mut outage = Outage::new(&cloud.context.events);
    loop {
        let answer = outage.outlast(site.server(id).await, || begun.elapsed() > END_LIMIT);
        let Some(answer) = answer.map_err(|error| error.left(left()))? else {
            tokio::time::sleep(pause).await;
            continue;
        };
        let Some(server) = answer else { return Ok(()) };
        let is_leaving = server.status == "DELETED" || server.task.as_deref() == Some("deleting");
        if !is_leaving
            && let Err(failure) = site.delete_server(id).await
            && failure.effect == Effect::None
        {
            return Err(Error::from(failure).left(left()));
        }
        if begun.elapsed() > END_LIMIT {
            return Err(Error::new(ErrorKind::Timeout, format!("delete the server {}", server.name))
                .because(format!("it is still {} after {} minutes", server.status, END_LIMIT.as_secs() / 60))
                .left(left()));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}

/// How to log in to a server: the head at its floating IP, other hosts through the head.
pub(super) async fn place(cloud: &Cloud, tag: &Tag, id: &str) -> Result<HostPlace> {
    let site = cloud.site().await?;
    let doing = || format!("find the address of {}", tag.key.display_name());
    let server = site.server(id).await?.filter(|server| {
        server.metadata.get(TAG).is_some_and(|text| *text == tag.to_string()) && server.status == "ACTIVE"
    });
    let Some(server) = server else {
        return Err(Error::new(ErrorKind::Provider, doing()).because("no active server has that tag and id"));
    };
    let fixed = server.fixed_ips().next().map(str::to_owned);
    let (node, jump) = if tag.key == Key::host(0) {
        let addresses = site.floating_ips().await?;
        (public_ip(&server, &addresses), None)
    } else {
        (fixed.clone(), Some(Key::host(0).display_name()))
    };
    let node = node.ok_or_else(|| Error::new(ErrorKind::Provider, doing()).because("the server has no address"))?;
    let checked = |text: &str| address_in(text).map_err(|error| error.while_doing(doing()));
    let node = checked(&node)?;
    let fixed = fixed.as_deref().map(checked).transpose()?;
    let folder = cloud.folder(&tag.cluster);
    Ok(HostPlace::Ssh {
        target: SshTarget {
            node,
            user: Some(cloud.settings.user().to_owned()),
            port: None,
            identity_file: key_pair(&folder, LOGIN).map(|pair| pair.file),
            host_key: public_key(&folder, tag.key.as_str()),
            jump,
            private_address: fixed,
            relay: None,
        },
        site: Box::default(),
    })
}

/// Validates the site's address: it goes into `ssh_config`, and from there into a jump command.
fn address_in(text: &str) -> Result<String> {
    let address: std::net::IpAddr = text.parse().map_err(|_| {
        Error::new(ErrorKind::Provider, "read the address of the server")
            .because(format!("the site gives `{}`, which is not an IP address", text.escape_debug()))
    })?;
    Ok(address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_server_is_an_ip_address_or_an_error() {
        for attack in ["10.0.0.7\n    ProxyCommand touch /tmp/x", "-oProxyCommand=sh", "host.example", "`id`", ""] {
            assert!(address_in(attack).unwrap_err().to_string().contains("not an IP address"), "{attack}");
        }
        assert_eq!(address_in("10.140.83.6").unwrap(), "10.140.83.6");
        assert_eq!(address_in("2001:db8::7").unwrap(), "2001:db8::7");
    }
}
