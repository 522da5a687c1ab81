//! Resolves what a spec leaves open before anything is acquired: type, region, key, file systems, image.

use super::api::{FileSystem, Instance, InstanceType, Status, TypeItem};
use super::choice::{self, Ask, None as Nothing, gpu_offer, is_arm};
use super::cloud::{Age, Cloud, tag_of};
use super::config::{self, HostSettings};
use super::found::HostFound;
use super::used::{files_of, image_of, key_of};
use crate::error::{Error, ErrorKind, Result, Status as Retry};
use crate::money::HourlyPrice;
use crate::name::{Key, Scope};
use crate::provider::{Finding, HostRequest, Offer, Resolved};
use crate::util::near::nearest;

/// The cluster's existing resources.
struct Existing<'a> {
    /// For each host its instance, if that is usable or coming.
    hosts: Vec<Option<&'a Instance>>,
    /// A region that is fixed by an immovable resource, and a description of that resource.
    region: Option<(String, String)>,
}

/// Resolves type, region, key, file systems and image of these hosts.
pub(super) async fn resolve(cloud: &Cloud, scope: &Scope, hosts: Vec<HostRequest>) -> Result<Resolved> {
    let account = cloud.account()?;
    let entries: Vec<HostSettings> =
        hosts.iter().map(|host| config::read_host(&host.settings, "").unwrap_or_default()).collect();
    let wants_files = !cloud.settings.file_systems.is_empty();
    let (types, instances, keys, files, images) = tokio::try_join!(
        async { Ok(account.types().await?) },
        cloud.instances(Age::Fresh),
        cloud.keys(Age::Fresh),
        async { if wants_files { cloud.file_systems(Age::Fresh).await } else { Ok(std::sync::Arc::default()) } },
        async { if cloud.settings.image.is_some() { Ok(account.images().await?) } else { Ok(Vec::new()) } },
    )?;
    let existing = existing(scope, &hosts, &instances, &files);
    let mut notes = vec![format!("it uses the API key from {}", account.source())];
    let region = where_it_is(cloud, &existing, &files, &types).await?;
    let missing: Vec<usize> = (0..hosts.len()).filter(|index| existing.hosts[*index].is_none()).collect();
    let ask = Ask {
        hosts: missing.iter().map(|index| entries[*index].clone()).collect(),
        types: &cloud.settings.types,
        regions: region,
        most: cloud.settings.most(),
        rules: hosts.len() > 1,
    };
    let chosen = match (missing.is_empty(), &existing.region) {
        (true, Some((region, _))) => choice::Choice { region: region.clone(), types: Vec::new() },
        _ => choice::choose(&ask, &types, |kind, region| cloud.just_refused(account, kind, region))
            .map_err(|why| nothing(why, &ask, &existing))?,
    };
    if let Some((region, what)) = existing.region.as_ref().filter(|_| !missing.is_empty()) {
        notes.push(format!("it continues in {region}, where {what} is"));
    }
    let key = key_of(cloud, scope, &keys, existing.hosts.iter().copied().flatten(), &mut notes)?;
    let file_systems = files_of(cloud, &files, &chosen.region)?;
    let mut resolved = Resolved::default();
    let mut chosen_types = chosen.types.iter();
    let mut costs: Vec<(String, HourlyPrice)> = Vec::new();
    for (index, mut host) in hosts.iter().cloned().enumerate() {
        let kind: &InstanceType = match existing.hosts[index] {
            Some(instance) => &instance.instance_type,
            None => type_named(&types, chosen_types.next().map(String::as_str).unwrap_or_default())?,
        };
        let image =
            cloud.settings.image.as_deref().map(|name| image_of(name, &images, &chosen.region, kind)).transpose()?;
        let found = HostFound {
            region: chosen.region.clone(),
            kind: kind.name.clone(),
            several: hosts.len() > 1,
            key: key.clone(),
            file_systems: file_systems.clone(),
            image,
        };
        let (label, price) = (Some(kind.name.clone()), Some(kind.price()));
        host.found = Finding { label, price, ..Finding::of(&found)? };
        resolved.hosts.push(host);
        resolved.offers.push(offer(kind, &chosen.region, "now"));
        costs.push((kind.name.clone(), kind.price()));
        if is_arm(kind) && !notes.iter().any(|note| note.contains("arm64")) {
            notes.push(arm(&kind.name));
        }
    }
    notes.insert(0, describe_costs(&costs, &chosen.region));
    resolved.notes = notes;
    Ok(resolved)
}

/// Turns a type into an offer.
pub(super) fn offer(kind: &InstanceType, place: &str, free: &str) -> Offer {
    Offer {
        name: kind.name.clone(),
        place: place.to_owned(),
        cpus: kind.specs.vcpus,
        memory: kind.specs.memory_gib << 30,
        gpus: gpu_offer(kind),
        price_per_hour: Some(kind.price()),
        free: free.to_owned(),
    }
}

/// The note for a type with an arm64 processor.
fn arm(kind: &str) -> String {
    format!(
        "{kind} has an arm64 processor: images and programs built only for x86_64 do not run there; Ray's image needs its \
         -aarch64 tag (`image:` under `ray:`), and every service and job needs a build for arm64"
    )
}

/// Describes the total price: `4 x gpu_1x_a10 in us-east-1: 5.16 USD an hour`.
fn describe_costs(costs: &[(String, HourlyPrice)], region: &str) -> String {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for (name, _) in costs {
        match kinds.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((name, 1)),
        }
    }
    let kinds: Vec<String> = kinds.iter().map(|(name, count)| format!("{count} x {name}")).collect();
    let sum = crate::money::sums(costs.iter().map(|(_, price)| price.0));
    format!("{} in {region}: {} an hour, from launch to termination", kinds.join(", "), crate::money::describe(&sum))
}

/// Finds the cluster's existing hosts, and the region they or its file system fix.
fn existing<'a>(scope: &Scope, hosts: &[HostRequest], instances: &'a [Instance], files: &[FileSystem]) -> Existing<'a> {
    let of_scope = |instance: &&Instance| tag_of(instance).is_some_and(|tag| scope.holds(&tag));
    let ours: Vec<&Instance> = instances.iter().filter(of_scope).collect();
    let good =
        |instance: &&&Instance| !matches!(instance.status, Status::Unhealthy | Status::Preempted | Status::Terminating);
    let of_host = |key: &Key| {
        let is_it = |instance: &&&Instance| tag_of(instance).is_some_and(|tag| tag.key == *key);
        ours.iter().filter(good).find(is_it).copied()
    };
    let place = ours.iter().find(|one| good(one)).map(|one| (one.region.name.clone(), "one of its hosts".to_owned()));
    let own_file = files.iter().find(|file| file.name.parse().is_ok_and(|tag| scope.holds(&tag)));
    Existing {
        hosts: hosts.iter().map(|host| of_host(&host.key)).collect(),
        region: place
            .or_else(|| own_file.map(|file| (file.region.name.clone(), format!("its file system {}", file.name)))),
    }
}

/// The acceptable regions, in order of preference; exactly one if an existing resource fixes it.
async fn where_it_is(
    cloud: &Cloud,
    existing: &Existing<'_>,
    files: &[FileSystem],
    types: &[TypeItem],
) -> Result<Vec<String>> {
    if let Some((region, _)) = &existing.region {
        return Ok(vec![region.clone()]);
    }
    let settings = &cloud.settings;
    let doing = || "choose a region".to_owned();
    let listed = |name: &String| {
        types.iter().flat_map(|item| &item.regions_with_capacity_available).any(|region| region.name == *name)
    };
    if settings.regions.iter().any(|name| !listed(name)) {
        // The list of types shows only regions with capacity now; a missing one may still exist.
        let known: Vec<String> = cloud.account()?.regions().await?.into_iter().map(|region| region.name).collect();
        if let Some(wrong) = settings.regions.iter().find(|name| !known.contains(name)) {
            let mut error = Error::new(ErrorKind::Provider, doing())
                .because(format!("Lambda has no region `{wrong}` (`regions:` in the spec)"))
                .hint(format!("available: {}", known.join(", ")));
            if let Some(near) = nearest(wrong, known.iter().map(String::as_str)) {
                error = error.hint(format!("did you mean `{near}`?"));
            }
            return Err(error);
        }
    }
    // An existing file system restricts the regions.
    let mut regions = settings.regions.clone();
    for wanted in &settings.file_systems {
        let places: Vec<&FileSystem> = files.iter().filter(|file| file.name == wanted.name).collect();
        if places.is_empty() && !wanted.create {
            let known: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
            return Err(Error::new(ErrorKind::Provider, format!("find the file system {}", wanted.name))
                .because("the account has no file system of that name")
                .hint(format!("it has: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") }))
                .hint("`create: true` creates it"));
        }
        if places.is_empty() {
            continue;
        }
        let at: Vec<String> = places.iter().map(|file| file.region.name.clone()).collect();
        let before = std::mem::take(&mut regions);
        regions = if before.is_empty() {
            at.clone()
        } else {
            before.iter().filter(|name| at.contains(name)).cloned().collect()
        };
        if regions.is_empty() {
            return Err(Error::new(ErrorKind::Provider, doing())
                .because(format!(
                    "the file system {} is in {}, but the hosts must be in {}",
                    wanted.name,
                    at.join(", "),
                    before.join(", ")
                ))
                .hint("a file system is usable only in its region: change `regions:`, or use another file system"));
        }
    }
    Ok(regions)
}

fn type_named<'a>(types: &'a [TypeItem], name: &str) -> Result<&'a InstanceType> {
    types.iter().map(|item| &item.instance_type).find(|kind| kind.name == name).ok_or_else(|| {
        Error::new(ErrorKind::Internal, format!("find the type {name}")).because("it was chosen, but is not listed")
    })
}

/// The error for a failed choice.
fn nothing(why: Nothing, ask: &Ask<'_>, existing: &Existing<'_>) -> Error {
    let doing = "find hosts at Lambda";
    let permanent = |text: String| Error::new(ErrorKind::Provider, doing).because(text);
    match why {
        Nothing::UnknownType { name, known } => {
            let error = permanent(format!("Lambda has no type `{name}`"));
            let error = match nearest(&name, known.iter().map(String::as_str)) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error,
            };
            error.hint("gpucl offers --provider lambda --all   # shows all types")
        }
        Nothing::NothingLikeThat { models } => permanent("no type has such GPUs".to_owned())
            .hint(format!("available models: {}", models.join(", ")))
            .hint("gpucl offers --provider lambda --all   # shows all types"),
        Nothing::TooDear { cheapest, price } => {
            let most = ask.most.map(|most| most.to_string()).unwrap_or_default();
            permanent(format!("the cheapest match, {cheapest}, costs {price} an hour, but `max_price:` is {most}"))
                .hint("raise `max_price:` in the spec, or choose another type")
        }
        Nothing::NoRules { region } => permanent(format!(
            "{region} has no firewall rules, and several hosts need them to open their ports to each other only"
        ))
        .hint("choose another region (`regions:` in the spec), or use one host"),
        Nothing::NoCapacity { accepted, regions } => {
            let types: Vec<String> = accepted.iter().map(|(name, price)| format!("{name} ({price} an hour)")).collect();
            let place = match (regions.as_slice(), &existing.region) {
                ([one], Some((_, what))) => format!("{one}, where {what} is"),
                ([], _) => "any region".to_owned(),
                (some, _) => some.join(", "),
            };
            let count = ask.hosts.len();
            let of_each = if count > 1 { format!(" for {count} hosts in one region") } else { String::new() };
            Error::new(ErrorKind::Capacity, doing)
                .because(format!("none is free now{of_each}; acceptable: {} in {place}", types.join(", ")))
                .status(Retry::Temporary)
                .hint("wait for it: the same with --wait-capacity 6h")
                .hint("see what is free now: gpucl offers --provider lambda")
        }
    }
}
