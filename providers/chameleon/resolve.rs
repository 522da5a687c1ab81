//! Resolves what a spec leaves open before anything is acquired: lease, hosts, image, flavor, networks.

use jiff::Timestamp;

use super::api::{FailureKind, FloatingIp, Image, Lease, Network};
use super::cloud::{Calendar, Cloud, login_note, offer, restricted};
use super::config::{self, HostSettings};
use super::found::{HostFound, LeaseFound, Wanted};
use super::leases::{describe_degraded, is_degraded, state_of, tag_of, title};
use super::proposal::{no_slot, proposal_notes};
use super::slots;
use crate::error::{Error, ErrorKind, Result};
use crate::money::{self, HourlyPrice, Money};
use crate::name::Scope;
use crate::provider::{CalendarRow, Finding, HostRequest, LeaseState, Resolved, Start};
use crate::util::when;

/// Resolves lease, hosts, image, flavor and networks of these hosts.
pub(super) async fn resolve(cloud: &Cloud, scope: &Scope, hosts: Vec<HostRequest>) -> Result<Resolved> {
    let entries: Vec<HostSettings> =
        hosts.iter().map(|host| config::read_host(&host.settings, "").unwrap_or_default()).collect();
    let wanted = Wanted::of(&entries);
    let site = cloud.site_with(&wanted.nodes).await?;
    let settings = &cloud.settings;
    let (who, login_end, calendar, network, public, flavors, addresses) = {
        let (who, login_end, networks, publics, flavors, addresses) = tokio::try_join!(
            site.who(),
            async { Ok(site.credential_end().await.ok().flatten()) },
            site.networks(settings.network()),
            site.networks(settings.public_network()),
            site.flavors(),
            async {
                match settings.floating_ip {
                    Some(_) => site.floating_ips().await,
                    None => Ok(Vec::new()),
                }
            }
        )?;
        let calendar = cloud.calendar_now(&wanted.nodes).await?;
        (
            who,
            login_end,
            calendar,
            one_network(networks, settings.network())?,
            one_network(publics, settings.public_network())?,
            flavors,
            addresses,
        )
    };
    let flavor = flavors
        .iter()
        .find(|flavor| flavor.name == settings.flavor() || flavor.id == settings.flavor())
        .ok_or_else(|| missing("flavor", settings.flavor(), flavors.iter().map(|flavor| flavor.name.as_str())))?;
    let address = settings.floating_ip.as_deref().map(|wanted| own_address(&addresses, wanted)).transpose()?;

    let found = find_lease(cloud, scope, &calendar, &wanted, &who.user_id)?;
    let mut resolved = Resolved::default();
    let (lease, names) = match found {
        Some((found, lease)) => {
            let span = when::span(lease.start, lease.end, &cloud.zone());
            resolved.notes.push(format!(
                "it uses the lease {} on {}: {span}",
                title(&lease),
                calendar.hosts_of(&lease).join(", ")
            ));
            if is_degraded(&lease) {
                resolved.notes.push(describe_degraded(&lease));
            }
            let now = Timestamp::now();
            resolved.end = Some(lease.end);
            if state_of(&lease) == LeaseState::Pending && lease.start > now {
                resolved.start = Some(Start { at: lease.start, what: format!("the lease {}", title(&lease)) });
            }
            let names = match wanted.nodes.is_empty() {
                true => calendar.hosts_of(&lease),
                false => wanted.nodes.clone(),
            };
            (found, names)
        }
        None => {
            if who.restricted == Some(true) {
                return Err(restricted(site));
            }
            let zone = cloud.zone();
            let ask = settings.ask(&entries, &zone).map_err(|why| {
                Error::new(ErrorKind::Spec, "read when the lease begins and ends (provider.start, provider.until)")
                    .because(why)
            })?;
            let slot = slots::plan(&calendar.rows, &ask, &cloud.policy(), Timestamp::now(), &zone)
                .map_err(|none| no_slot(cloud, &none, &ask))?;
            resolved.notes.extend(proposal_notes(cloud, &calendar.rows, &slot));
            resolved.end = Some(slot.end);
            if !slot.now {
                resolved.start = Some(Start { at: slot.start, what: format!("a lease on {}", slot.hosts.join(", ")) });
            }
            let start = (!slot.now).then_some(slot.start);
            let hosts = slot.hosts.clone();
            // The spec's first host is the head, whatever the order in the slot.
            let names = if wanted.nodes.is_empty() { slot.hosts } else { wanted.nodes.clone() };
            (LeaseFound::New { start, end: slot.end, hosts }, names)
        }
    };
    let ends = resolved.end.and_then(|until| login_note(site, login_end, until, &cloud.zone()));
    resolved.notes.extend(ends);
    let price = price_of(&calendar.rows, &names);
    let now = Timestamp::now();
    for (index, mut host) in hosts.into_iter().enumerate() {
        let node = names.get(index).cloned().ok_or_else(|| {
            Error::new(ErrorKind::Provider, "find hosts in the lease").because(format!(
                "it holds {}, and the spec asks for {}",
                names.len(),
                wanted.count
            ))
        })?;
        let row = calendar.rows.iter().find(|row| row.name == node);
        let has_amd = row.is_some_and(|row| row.gpus.iter().any(|gpu| is_amd(&gpu.model)));
        let image = image_id(cloud, &settings.image(&entries[index], has_amd)).await?;
        resolved.offers.extend(row.map(|row| offer(row, now, &cloud.zone())));
        let found = HostFound {
            wanted: wanted.clone(),
            lease: lease.clone(),
            node,
            image,
            flavor: flavor.id.clone(),
            network: network.id.clone(),
            public: public.id.clone(),
            address: address.clone(),
        };
        let label = Some(format!("lease on {}", names.join(", ")));
        host.found = Finding { label, price, ..Finding::of(&found)? };
        resolved.hosts.push(host);
    }
    Ok(resolved)
}

/// The hourly price of these hosts; `None` if the site does not report it for one of them.
pub(super) fn price_of(rows: &[CalendarRow], names: &[String]) -> Option<HourlyPrice> {
    let of = |name: &String| Some(rows.iter().find(|row| row.name == *name)?.price_per_hour?.0);
    let prices: Vec<Money> = names.iter().map(of).collect::<Option<_>>()?;
    money::sums(prices).first().copied().map(HourlyPrice)
}

/// Whether a GPU needs the ROCm stack.
fn is_amd(model: &str) -> bool {
    let model = model.to_lowercase();
    ["mi100", "mi210", "mi250", "mi300", "mi325", "mi350", "amd", "radeon", "instinct"]
        .iter()
        .any(|part| model.contains(part))
}

/// The lease that the cluster has, or that the user means it to have.
fn find_lease(
    cloud: &Cloud,
    scope: &Scope,
    calendar: &Calendar,
    wanted: &Wanted,
    user: &str,
) -> Result<Option<(LeaseFound, Lease)>> {
    let is_live =
        |lease: &&Lease| matches!(state_of(lease), LeaseState::Pending | LeaseState::Active | LeaseState::Changing);
    let holds_all = |lease: &Lease| {
        let hosts = calendar.hosts_of(lease);
        wanted.nodes.iter().all(|node| hosts.contains(node))
    };
    let own = |lease: &&Lease| lease.user_id == user && tag_of(lease).is_some_and(|tag| scope.holds(&tag));
    if let Some(lease) = calendar.leases.iter().filter(is_live).find(own) {
        if !holds_all(lease) {
            return Err(other_hosts(scope, calendar, lease, wanted));
        }
        return Ok(Some((LeaseFound::Own { id: lease.id.clone() }, lease.clone())));
    }
    if let Some(name) = &cloud.settings.lease {
        let lease = named(calendar, name)?;
        if !is_live(&lease) {
            return Err(unusable(lease, &cloud.zone()));
        }
        if !holds_all(lease) {
            return Err(other_hosts(scope, calendar, lease, wanted));
        }
        return Ok(Some((LeaseFound::Adopted { id: lease.id.clone() }, lease.clone())));
    }
    if wanted.nodes.is_empty() {
        return Ok(None);
    }
    // A lease of another cluster of ours belongs to that cluster.
    let is_free = |lease: &&Lease| tag_of(lease).is_none_or(|tag| tag.cluster.as_str() == crate::name::LEASES);
    let mut holding: Vec<&Lease> = calendar
        .leases
        .iter()
        .filter(is_live)
        .filter(|lease| lease.user_id == user)
        .filter(is_free)
        .filter(|lease| holds_all(lease))
        .collect();
    holding.sort_by_key(|lease| (lease.start, lease.end));
    Ok(holding.first().map(|lease| (LeaseFound::Adopted { id: lease.id.clone() }, (*lease).clone())))
}

/// Finds the lease of this name or id; fails if there is none, or several.
pub(super) fn named<'a>(calendar: &'a Calendar, name: &str) -> Result<&'a Lease> {
    let is_it = |lease: &&Lease| lease.id == name || lease.name == name || title(lease) == name;
    let found: Vec<&Lease> = calendar.leases.iter().filter(is_it).collect();
    let error = || Error::new(ErrorKind::NotFound, format!("find the lease {name}"));
    let live = |lease: &&&Lease| state_of(lease) != LeaseState::Ended;
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(error().because("the project has no lease of that name or id").hint("gpucl lease list --all")),
        several => match several.iter().filter(live).collect::<Vec<_>>().as_slice() {
            [one] => Ok(one),
            _ => {
                let ids: Vec<&str> = several.iter().map(|lease| lease.id.as_str()).collect();
                Err(error().because(format!("several leases have that name: {}", ids.join(", "))).hint("use its id"))
            }
        },
    }
}

/// The error for a named lease that has failed or ended.
fn unusable(lease: &Lease, zone: &jiff::tz::TimeZone) -> Error {
    let error = Error::new(ErrorKind::Provider, format!("use the lease {}", title(lease)));
    match state_of(lease) {
        LeaseState::Failed => error
            .because("it is in ERROR: the reservation service failed on it")
            .hint(format!("gpucl lease delete {}   # then make another", lease.id)),
        _ => error
            .because(format!("it ended at {}", when::both(lease.end, zone)))
            .hint("gpucl lease list   # shows yours; `gpucl lease --node NAME --hours 3` makes another"),
    }
}

fn other_hosts(scope: &Scope, calendar: &Calendar, lease: &Lease, wanted: &Wanted) -> Error {
    Error::new(ErrorKind::Provider, format!("use the lease {}", title(lease)))
        .because(format!(
            "it holds {}, and the spec asks for {}",
            calendar.hosts_of(lease).join(", "),
            wanted.nodes.join(", ")
        ))
        .because("the hosts of a lease cannot be changed; nothing was changed")
        .hint(format!("gpucl down -c {}   # then up again, or take a lease with these hosts", scope.cluster))
}

fn one_network(networks: Vec<Network>, name: &str) -> Result<Network> {
    networks.into_iter().next().ok_or_else(|| missing("network", name, std::iter::empty()))
}

fn missing<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    let error = Error::new(ErrorKind::Provider, format!("find the {what} {name}"))
        .because(format!("the site has no {what} of that name"));
    match known.is_empty() {
        true => error.hint(format!("choose another with `provider.{what}:` in the spec")),
        false => error.hint(format!("available: {}", known.join(", "))),
    }
}

fn own_address(addresses: &[FloatingIp], wanted: &str) -> Result<String> {
    let found = addresses.iter().find(|address| address.address == wanted || address.id == wanted);
    found.map(|address| address.id.clone()).ok_or_else(|| {
        let known: Vec<&str> = addresses.iter().map(|address| address.address.as_str()).collect();
        Error::new(ErrorKind::Provider, format!("find the floating IP {wanted}"))
            .because("the project has no such floating IP")
            .hint(format!("it has: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") }))
    })
}

/// Finds an active image by name or id; of several public ones, the newest.
async fn image_id(cloud: &Cloud, name: &str) -> Result<String> {
    let site = cloud.site().await?;
    let mut images: Vec<Image> =
        site.images(name).await?.into_iter().filter(|image| image.status == "active").collect();
    if images.is_empty() && looks_like_id(name) {
        match site.image(name).await {
            Ok(image) => images.extend(image),
            Err(failure) if failure.kind == FailureKind::NotFound => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    let (mut public, own): (Vec<Image>, Vec<Image>) =
        images.into_iter().filter(|image| !image.hidden).partition(|image| image.visibility == "public");
    public.sort_by_key(|image| image.created);
    if let Some(newest) = public.pop() {
        return Ok(newest.id);
    }
    match own.as_slice() {
        [one] => Ok(one.id.clone()),
        [] => Err(missing("image", name, std::iter::empty())),
        several => {
            let ids: Vec<String> = several.iter().map(|image| format!("{} ({})", image.id, image.visibility)).collect();
            Err(Error::new(ErrorKind::Provider, format!("find the image {name}"))
                .because(format!("several images have that name, and none is public: {}", ids.join(", ")))
                .hint("use its id"))
        }
    }
}

fn looks_like_id(name: &str) -> bool {
    name.len() >= 32 && name.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-')
}
