//! The resources of a host: SSH key, ruleset, file systems, instance. One module each acquires and waits for it.

mod file_system;
mod instance;
mod key;
mod rules;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::{Effect, Failure, FailureKind, Instance, Ruleset, Status};
use super::cloud::{Age, Cloud, tag_of};
use super::config;
use super::found::{HostFound, KeyFound, key_key};
use crate::error::{Error, ErrorKind, LeftBehind, Result};
use crate::name::{Key, Owner, Scope, Tag};
use crate::provider::kit::ConsistencyDelay;
use crate::provider::{
    Acquired, HostPlace, HostRequest, ObservedResource, Recorder, ResourceKind, ResourceRequest, settings,
};

/// How long a new resource may be missing from the list.
const SHOWS_WITHIN: Duration = Duration::from_secs(5);
/// The interval at which a new resource is looked for in the list.
const SHOWS_POLL: Duration = Duration::from_secs(1);
/// How long a resource may still count as in use after its instance is gone.
const FREE_WITHIN: Duration = Duration::from_secs(3 * 60);
/// The poll interval for pending changes.
const POLL: Duration = Duration::from_secs(5);

/// The kinds of resource, in the order of acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LambdaResource {
    SshKey,
    Ruleset,
    FileSystem,
    Instance,
}

impl LambdaResource {
    const ALL: [Self; 4] = [Self::SshKey, Self::Ruleset, Self::FileSystem, Self::Instance];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SshKey => "ssh_key",
            Self::Ruleset => "firewall_ruleset",
            Self::FileSystem => "file_system",
            Self::Instance => "instance",
        }
    }

    fn of(kind: &ResourceKind) -> Result<Self> {
        Self::ALL.into_iter().find(|known| known.name() == kind.0).ok_or_else(|| {
            Error::new(ErrorKind::Provider, format!("acquire a {}", kind.0))
                .because(format!("Lambda has no resource of kind `{}`", kind.0))
        })
    }
}

/// The key of the ruleset that all hosts share.
fn rules_key() -> Key {
    Key::numbered("rules", 0)
}

/// The resources of one host.
pub(super) fn expand(cloud: &Cloud, request: &HostRequest) -> Result<Vec<ResourceRequest>> {
    let doing = || format!("read the entry of {}", request.key.display_name());
    let entry = config::read_host(&request.settings, "").map_err(|errors| settings::wrong(doing(), &errors))?;
    // Without a finding, the host is requested as if it were the only one, in any region.
    let found: Option<HostFound> = request.found.read()?;
    let mut requests = vec![ResourceRequest::new(key_key(), LambdaResource::SshKey.name(), json!({}))];
    if let Some(KeyFound::Account { id, .. }) = found.as_ref().map(|found| &found.key) {
        requests[0].adopted = Some(id.clone());
    }
    if let Some(found) = found.as_ref().filter(|found| found.several) {
        // A ruleset belongs to a region, so the region is part of its settings.
        let settings = json!({ "region": found.region });
        requests.push(ResourceRequest::new(rules_key(), LambdaResource::Ruleset.name(), settings));
    }
    for file in found.iter().flat_map(|found| &found.file_systems) {
        let (Some(key), Some(found)) = (file.wanted.key(), &found) else { continue };
        let settings = json!({ "name": file.wanted.name, "region": found.region, "keep": file.wanted.keep });
        let request = ResourceRequest::new(key, LambdaResource::FileSystem.name(), settings);
        requests.push(ResourceRequest { adopted: file.id.clone(), ..request });
    }
    let needs = requests.iter().map(|request| request.key.clone()).collect();
    // The finding decides: an existing host keeps its type while the spec still accepts it.
    let kind = found.as_ref().map(|found| found.kind.clone()).or_else(|| entry.kind.clone());
    let need = if kind.is_none() { json!(entry.gpus) } else { Value::Null };
    let settings = json!({ "type": kind, "gpus": need, "image": cloud.settings.image });
    requests.push(ResourceRequest {
        found: request.found.clone(),
        needs,
        is_host: true,
        ..ResourceRequest::new(request.key.clone(), LambdaResource::Instance.name(), settings)
    });
    Ok(requests)
}

/// The owner's existing resources, in the order of acquisition.
pub(super) async fn owned(cloud: &Cloud, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>> {
    let mut found = tagged(cloud).await?;
    found.retain(|(tag, _)| tag.owner == *owner);
    Ok(found)
}

/// All tagged resources, in the order of acquisition.
pub(super) async fn tagged(cloud: &Cloud) -> Result<Vec<(Tag, ObservedResource)>> {
    let (keys, rulesets, files, instances) = tokio::try_join!(
        cloud.keys(Age::Fresh),
        cloud.rulesets(Age::Fresh),
        cloud.file_systems(Age::Fresh),
        cloud.instances(Age::Fresh)
    )?;
    let named = |kind: LambdaResource, name: &str, id: &str, detail: &str| {
        let tag: Tag = name.parse().ok()?;
        let resource = ObservedResource::existing(tag.key.clone(), kind.name(), id);
        Some((tag, ObservedResource { detail: detail.to_owned(), ..resource }))
    };
    let keys = keys.iter().filter_map(|one| named(LambdaResource::SshKey, &one.name, &one.id, ""));
    // Any user of the account can change its name: a ruleset in use by an untagged machine is not ours.
    let is_used_by_others =
        |one: &&Ruleset| instances.iter().any(|host| one.instance_ids.contains(&host.id) && tag_of(host).is_none());
    let rulesets = rulesets.iter().filter(|one| !is_used_by_others(one));
    let rulesets = rulesets.filter_map(|one| named(LambdaResource::Ruleset, &one.name, &one.id, &one.region.name));
    let files = files.iter().filter_map(|one| named(LambdaResource::FileSystem, &one.name, &one.id, &one.region.name));
    let instances = instances.iter().filter_map(instance::observed);
    Ok(keys.chain(rulesets).chain(files).chain(instances).collect())
}

/// Observes adopted resources: those that the cluster uses but did not make.
pub(super) async fn observe_adopted(cloud: &Cloud, requests: &[ResourceRequest]) -> Result<Vec<ObservedResource>> {
    let mut observed = Vec::new();
    for request in requests {
        let Some(id) = &request.adopted else { continue };
        let kind = LambdaResource::of(&request.kind)?;
        let name = match kind {
            LambdaResource::SshKey => {
                let keys = cloud.keys(Age::Fresh).await?;
                keys.iter().find(|one| one.id == *id).map(|one| one.name.clone())
            }
            LambdaResource::FileSystem => {
                let files = cloud.file_systems(Age::Fresh).await?;
                files.iter().find(|one| one.id == *id).map(|one| one.name.clone())
            }
            LambdaResource::Ruleset | LambdaResource::Instance => None,
        };
        observed.extend(name.map(|name| ObservedResource {
            adopted: true,
            detail: name,
            ..ObservedResource::existing(request.key.clone(), kind.name(), id)
        }));
    }
    Ok(observed)
}

pub(super) async fn acquire(
    cloud: &Cloud,
    tag: &Tag,
    request: &ResourceRequest,
    recorder: &dyn Recorder,
) -> Result<Acquired> {
    let acquired = match LambdaResource::of(&request.kind)? {
        LambdaResource::SshKey => key::acquire(cloud, tag).await,
        LambdaResource::Ruleset => rules::acquire(cloud, tag, request).await,
        LambdaResource::FileSystem => file_system::acquire(cloud, tag, request).await,
        LambdaResource::Instance => instance::acquire(cloud, tag, request).await,
    }?;
    acquired.recorded(recorder, tag, &tag.to_string()).await
}

pub(super) async fn wait_usable(cloud: &Cloud, tag: &Tag, request: &ResourceRequest, id: &str) -> Result<()> {
    match LambdaResource::of(&request.kind)? {
        LambdaResource::Instance => {
            instance::wait_usable(cloud, tag, id).await?;
            match request.needs.contains(&rules_key()) {
                true => rules::let_peers_in(cloud, &scope_of(tag)).await,
                false => Ok(()),
            }
        }
        LambdaResource::SshKey | LambdaResource::Ruleset | LambdaResource::FileSystem => Ok(()),
    }
}

/// Releases a resource by its id, and waits until it is gone. Idempotent.
pub(super) async fn release(cloud: &Cloud, resource: &ObservedResource) -> Result<()> {
    match LambdaResource::of(&resource.kind)? {
        LambdaResource::Instance => instance::release(cloud, &resource.id).await,
        kind => remove(cloud, kind, &resource.id).await,
    }
}

/// Deletes a resource; retries while it still counts as in use by an instance that is just gone.
async fn remove(cloud: &Cloud, kind: LambdaResource, id: &str) -> Result<()> {
    let account = cloud.account()?;
    let begun = Instant::now();
    let mut lost = 0;
    loop {
        let deleted = match kind {
            LambdaResource::SshKey => account.delete_ssh_key(id).await,
            LambdaResource::Ruleset => account.delete_ruleset(id).await,
            LambdaResource::FileSystem => account.delete_file_system(id).await,
            LambdaResource::Instance => account.terminate(id).await,
        };
        cloud.changed();
        let Err(failure) = deleted else { return Ok(()) };
        if !is_left(cloud, kind, id).await? {
            return Ok(());
        }
        let waits = matches!(failure.kind, FailureKind::InUse | FailureKind::Conflict);
        // Deleting by id is idempotent.
        lost += u32::from(failure.effect == Effect::Unknown);
        let again = (waits && begun.elapsed() < account.limit(FREE_WITHIN)) || (!waits && (1..3).contains(&lost));
        if !again {
            return Err(Error::from(failure).left(LeftBehind::Remaining(vec![id.to_owned()])));
        }
        tokio::time::sleep(account.scaled(POLL)).await;
    }
}

async fn is_left(cloud: &Cloud, kind: LambdaResource, id: &str) -> Result<bool> {
    Ok(match kind {
        LambdaResource::SshKey => cloud.keys(Age::New).await?.iter().any(|one| one.id == id),
        LambdaResource::Ruleset => cloud.rulesets(Age::New).await?.iter().any(|one| one.id == id),
        LambdaResource::FileSystem => cloud.file_systems(Age::New).await?.iter().any(|one| one.id == id),
        LambdaResource::Instance => cloud.instances(Age::New).await?.iter().any(|one| one.id == id),
    })
}

/// A resource to find by its name or tag.
enum Named<'a> {
    /// A key of this name, and this public key.
    Key(&'a str, &'a str),
    /// A ruleset of this name in this region.
    Ruleset(&'a str, &'a str),
    /// A file system of this name in this region.
    FileSystem(&'a str, &'a str),
    /// An instance with this tag that is not being terminated.
    Instance(&'a Tag),
}

/// Finds the id of an existing resource.
async fn find(cloud: &Cloud, named: &Named<'_>) -> Result<Option<String>> {
    Ok(match named {
        Named::Key(name, public) => {
            let keys = cloud.keys(Age::New).await?;
            keys.iter().find(|one| one.name == *name && one.is(public)).map(|one| one.id.clone())
        }
        Named::Ruleset(name, region) => {
            let rulesets = cloud.rulesets(Age::New).await?;
            rulesets.iter().find(|one| one.name == *name && one.region.name == *region).map(|one| one.id.clone())
        }
        Named::FileSystem(name, region) => {
            let files = cloud.file_systems(Age::New).await?;
            files.iter().find(|one| one.name == *name && one.region.name == *region).map(|one| one.id.clone())
        }
        Named::Instance(tag) => {
            let instances = cloud.instances(Age::New).await?;
            let is_it = |one: &&Instance| tag_of(one).as_ref() == Some(tag) && one.status != Status::Terminating;
            instances.iter().find(is_it).map(|one| one.id.clone())
        }
    })
}

/// The result of a creating call. Finds the resource if the response was lost (polling until it would show), or if the
/// name is taken already.
async fn made(cloud: &Cloud, named: &Named<'_>, answer: std::result::Result<String, Failure>) -> Result<Acquired> {
    let failure = match answer {
        Ok(id) => return Ok(Acquired { id, was_there: false }),
        Err(failure) => failure,
    };
    if failure.kind == FailureKind::Duplicate
        && let Some(id) = find(cloud, named).await?
    {
        return Ok(Acquired { id, was_there: true });
    }
    if failure.effect == Effect::None {
        return Err(failure.into());
    }
    let account = cloud.account()?;
    let events = &cloud.context.events;
    events.note(format!("failed to {}: {}; checking whether it was done anyway", failure.doing, failure.text));
    let delay = ConsistencyDelay { limit: account.scaled(SHOWS_WITHIN), pause: account.scaled(SHOWS_POLL) };
    delay.find_made(failure, || find(cloud, named)).await
}

/// How to log in to an instance.
pub(super) async fn place(cloud: &Cloud, tag: &Tag, id: &str) -> Result<HostPlace> {
    instance::place(cloud, tag, id).await
}

fn scope_of(tag: &Tag) -> Scope {
    Scope { owner: tag.owner.clone(), cluster: tag.cluster.clone() }
}
