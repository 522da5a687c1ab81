//! Instances: launched once per tag, awaited until active, located for SSH, terminated and verified as gone.

use std::time::Duration;

use tokio::time::Instant;

use super::key::LOGIN;
use super::{LambdaResource, Named, POLL, file_system, made, rules, scope_of};
use crate::error::{Error, ErrorKind, LeftBehind, Result, Status as Retry};
use crate::event::EventKind;
use crate::host::SshTarget;
use crate::lambda::api::{Effect, Failure, FailureKind, Instance, NewInstance, Status};
use crate::lambda::cloud::{Age, Cloud, TAG, tag_of};
use crate::lambda::found::{HostFound, KeyFound, key_key};
use crate::lambda::resolve::resolve;
use crate::lambda::used::public_keys;
use crate::name::Tag;
use crate::provider::{Acquired, HostPlace, HostRequest, ObservedResource, Outage, ResourceRequest, ResourceState};
use crate::secret::{ensure_key_pair, key_pair, public_key};

/// How long an instance may take to be active with an address; 15 minutes were observed with 8 GPUs.
const BOOT_LIMIT: Duration = Duration::from_secs(30 * 60);
/// How long a termination may take.
const END_LIMIT: Duration = Duration::from_secs(10 * 60);
/// A limit applies only after this many polls: a machine that slept, or is very slow, has not polled yet.
const LEAST_POLLS: u32 = 3;
/// The hint for lack of capacity.
const WAIT: &str = "wait for it: the same with --wait-capacity 6h";
/// The maximum number of attempts to terminate if the response is lost. Idempotent, since it goes by id.
const AGAIN: u32 = 3;

/// The resource of a tagged instance.
pub(super) fn observed(instance: &Instance) -> Option<(Tag, ObservedResource)> {
    let tag = tag_of(instance)?;
    let has_address = instance.address().is_some();
    let (state, detail) = match &instance.status {
        Status::Active if has_address => (ResourceState::Usable, String::new()),
        Status::Active => (ResourceState::Coming, "it has no address yet".to_owned()),
        Status::Booting => (ResourceState::Coming, "it is booting".to_owned()),
        // An unknown status may be transitional; terminating a machine for it would be worse.
        Status::Other(status) => (ResourceState::Coming, format!("it is {status}")),
        Status::Unhealthy => (ResourceState::Unusable, "Lambda reports that it is unhealthy".to_owned()),
        Status::Preempted => (ResourceState::Unusable, "it was preempted by Lambda".to_owned()),
        Status::Terminating | Status::Terminated => (ResourceState::Unusable, "it is being terminated".to_owned()),
    };
    let resource = ObservedResource::existing(tag.key.clone(), LambdaResource::Instance.name(), &instance.id);
    Some((tag, ObservedResource { state, detail, ..resource }))
}

/// Launches the instance of this tag, or finds it.
pub(super) async fn acquire(cloud: &Cloud, tag: &Tag, request: &ResourceRequest) -> Result<Acquired> {
    let account = cloud.account()?;
    let named = Named::Instance(tag);
    if let Some(id) = super::find(cloud, &named).await? {
        return Ok(Acquired { id, was_there: true });
    }
    let found = match request.found.read::<HostFound>()? {
        Some(found) => found,
        None => find(cloud, tag, request).await?,
    };
    let new = new_instance(cloud, tag, request, &found).await?;
    // One at a time, as Lambda requires: a type that one launch was refused is not requested by the next.
    let _alone = cloud.launching.lock().await;
    if cloud.just_refused(account, &found.kind, &found.region) {
        let doing = format!("launch a {} in {}", found.kind, found.region);
        return Err(Error::new(ErrorKind::Capacity, doing)
            .because("it had no capacity a moment ago")
            .status(Retry::Temporary)
            .hint("see what is free now: gpucl offers --provider lambda")
            .hint(WAIT));
    }
    let launched = account.launch(&new).await;
    cloud.changed();
    match launched {
        Err(failure) if failure.kind == FailureKind::NoCapacity => {
            cloud.has_refused(&found.kind, &found.region);
            Err(refused(failure))
        }
        launched => made(cloud, &named, launched).await,
    }
}

/// The error for a launch refused although the list of types showed capacity.
fn refused(failure: Failure) -> Error {
    Error::from(failure).because("the list of types showed capacity: it went to somebody else").hint(WAIT)
}

/// Builds the launch request.
async fn new_instance(cloud: &Cloud, tag: &Tag, request: &ResourceRequest, found: &HostFound) -> Result<NewInstance> {
    let scope = scope_of(tag);
    let mut mounts = Vec::new();
    for file in &found.file_systems {
        let id = match (&file.id, file.wanted.key()) {
            (Some(id), _) => Some(id.clone()),
            (None, Some(key)) => {
                file_system::id_of(cloud, &scope.tag(&key), &file.wanted.name, file.wanted.keep, &found.region).await?
            }
            (None, None) => None,
        };
        let id = id.ok_or_else(|| {
            Error::new(ErrorKind::Provider, format!("launch {}", tag.key.display_name()))
                .because(format!("its file system {} no longer exists", file.wanted.name))
        })?;
        mounts.push((id, file.wanted.mount_point()));
    }
    Ok(NewInstance {
        name: tag.to_string(),
        hostname: format!("{}-{}", tag.cluster, tag.key.display_name()),
        kind: found.kind.clone(),
        region: found.region.clone(),
        ssh_key: match &found.key {
            KeyFound::Own => scope.tag(&key_key()).to_string(),
            KeyFound::Account { name, .. } => name.clone(),
        },
        mounts,
        image: found.image.clone(),
        user_data: ensure_key_pair(&cloud.folder(&tag.cluster), tag.key.as_str())?.cloud_config()?,
        tag: (TAG, tag.to_string()),
        rulesets: rules::ids_for(cloud, tag, request).await?,
    })
}

/// Resolves the request now, if that was not done before.
async fn find(cloud: &Cloud, tag: &Tag, request: &ResourceRequest) -> Result<HostFound> {
    let entry = match request.settings["type"].as_str() {
        Some(kind) => serde_json::json!({ "type": kind }),
        None => serde_json::json!({ "gpus": request.settings["gpus"] }),
    };
    let resolved = resolve(cloud, &scope_of(tag), vec![HostRequest::new(tag.key.clone(), entry)]).await?;
    let found = resolved.hosts.into_iter().next().map(|host| host.found).unwrap_or_default();
    let found: Option<HostFound> = found.read()?;
    let mut found = found.ok_or_else(|| Error::new(ErrorKind::Internal, format!("resolve the host {tag}")))?;
    // The request includes a key of its own.
    found.key = KeyFound::Own;
    Ok(found)
}

/// Waits until an instance is active and has an address.
pub(super) async fn wait_usable(cloud: &Cloud, tag: &Tag, id: &str) -> Result<()> {
    let account = cloud.account()?;
    let name = tag.key.display_name();
    let doing = || format!("boot {name}");
    let left = || LeftBehind::Remaining(vec![id.to_owned()]);
    let (begun, limit) = (Instant::now(), account.limit(BOOT_LIMIT));
    let (mut reported, mut polls) = (None, 0);
    let mut outage = Outage::new(&cloud.context.events);
    loop {
        polls += 1;
        let age = if reported.is_none() { Age::Fresh } else { Age::Within(account.scaled(POLL / 2)) };
        let is_over = || begun.elapsed() > limit && polls > LEAST_POLLS;
        let Some(instances) =
            outage.outlast(cloud.instances(age).await, is_over).map_err(|error| error.left(left()))?
        else {
            tokio::time::sleep(account.scaled(POLL)).await;
            continue;
        };
        let Some(instance) = instances.iter().find(|one| one.id == id) else {
            return Err(Error::new(ErrorKind::Provider, doing())
                .because("the instance no longer exists: somebody terminated it")
                .status(Retry::Temporary));
        };
        let stage = match &instance.status {
            Status::Active if instance.address().is_some() => return Ok(()),
            Status::Active => match instance.ip.as_deref() {
                None | Some("") => "no address yet".to_owned(),
                Some(text) => format!("Lambda gives `{}`, which is not an IP address", text.escape_debug()),
            },
            Status::Booting | Status::Other(_) => instance.status.to_string(),
            Status::Unhealthy | Status::Preempted | Status::Terminating | Status::Terminated => {
                let why = observed(instance).map(|(_, resource)| resource.detail).unwrap_or_default();
                return Err(Error::new(ErrorKind::Provider, doing())
                    .because(format!("{why} (the instance {id})"))
                    .status(Retry::Temporary)
                    .left(left()));
            }
        };
        if reported.as_ref() != Some(&stage) {
            let usual = usual(instance.instance_type.specs.gpus);
            let what = format!("{name} to boot ({stage}; {} usually takes {usual})", instance.instance_type.name);
            let limit_milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            cloud.context.events.send(EventKind::Waiting { what, limit_milliseconds });
            reported = Some(stage.clone());
        }
        if begun.elapsed() > limit && polls > LEAST_POLLS {
            let minutes = BOOT_LIMIT.as_secs() / 60;
            return Err(Error::new(ErrorKind::Timeout, doing())
                .because(format!("it is not ready after {minutes} minutes: {stage} (the instance {id})"))
                .hint(format!("release it, so that it costs no more: gpucl down -c {}", tag.cluster))
                .left(left()));
        }
        tokio::time::sleep(account.scaled(POLL)).await;
    }
}

/// The usual boot time of a type.
fn usual(gpus: u32) -> &'static str {
    if gpus >= 4 { "10 to 15 minutes" } else { "4 to 6 minutes" }
}

/// Terminates an instance, and waits until it is gone: until then it is billed.
pub(super) async fn release(cloud: &Cloud, id: &str) -> Result<()> {
    let account = cloud.account()?;
    let left = || LeftBehind::Remaining(vec![id.to_owned()]);
    let (begun, limit) = (Instant::now(), account.limit(END_LIMIT));
    let (mut sent, mut accepted, mut polls) = (0, false, 0);
    let mut outage = Outage::new(&cloud.context.events);
    loop {
        polls += 1;
        let is_over = || begun.elapsed() > limit && polls > LEAST_POLLS;
        let answer = outage.outlast(cloud.instances(Age::New).await, is_over);
        let Some(instances) = answer.map_err(|error| error.left(left()).hint(billed(id)))? else {
            tokio::time::sleep(account.scaled(POLL)).await;
            continue;
        };
        let Some(instance) = instances.iter().find(|one| one.id == id) else { return Ok(()) };
        if instance.status != Status::Terminating && !accepted {
            let terminated = account.terminate(id).await;
            cloud.changed();
            sent += 1;
            match terminated {
                Ok(()) => accepted = true,
                Err(failure) if failure.kind == FailureKind::NotFound => {}
                Err(failure) if failure.effect == Effect::Unknown && sent < AGAIN => {}
                // Not terminable yet: the list says so, with a reason.
                Err(_) if !instance.actions.terminate.available && begun.elapsed() < limit => sent = 0,
                Err(failure) => {
                    let reason = &instance.actions.terminate.reason_code;
                    let error = Error::from(failure).left(left());
                    let error =
                        if reason.is_empty() { error } else { error.because(format!("Lambda's reason: {reason}")) };
                    return Err(error.hint(billed(id)));
                }
            }
        }
        if begun.elapsed() > limit && polls > LEAST_POLLS {
            return Err(Error::new(ErrorKind::Timeout, format!("terminate the instance {id}"))
                .because(format!("it is still {} after {} minutes", instance.status, END_LIMIT.as_secs() / 60))
                .left(left())
                .hint(billed(id)));
        }
        tokio::time::sleep(account.scaled(if accepted { POLL / 2 } else { POLL })).await;
    }
}

fn billed(id: &str) -> String {
    format!("{id} is billed until it is terminated: try again, or terminate it at https://cloud.lambda.ai/instances")
}

/// How to log in to an instance.
pub(super) async fn place(cloud: &Cloud, tag: &Tag, id: &str) -> Result<HostPlace> {
    let doing = || format!("find the address of {}", tag.key.display_name());
    let instances = cloud.instances(Age::Fresh).await?;
    let is_it = |one: &&Instance| one.id == id && tag_of(one).as_ref() == Some(tag) && one.status == Status::Active;
    let Some(instance) = instances.iter().find(is_it) else {
        return Err(Error::new(ErrorKind::Provider, doing()).because("no active instance has that tag and id"));
    };
    let node = instance
        .address()
        .ok_or_else(|| Error::new(ErrorKind::Provider, doing()).because("the instance has no address"))?;
    let folder = cloud.folder(&tag.cluster);
    let own = scope_of(tag).tag(&key_key()).to_string();
    let identity_file = if instance.ssh_key_names.contains(&own) {
        key_pair(&folder, LOGIN).map(|pair| pair.file)
    } else {
        // A key of the account: its file in ~/.ssh, if it is there; else `ssh` chooses.
        let keys = cloud.keys(Age::Fresh).await?;
        let named = |text: &str| keys.iter().any(|key| instance.ssh_key_names.contains(&key.name) && key.is(text));
        let files = public_keys(&cloud.context.user_environment.home);
        files.into_iter().find(|(_, text)| named(text)).map(|(file, _)| file)
    };
    Ok(HostPlace::Ssh {
        target: SshTarget {
            node: node.to_string(),
            user: cloud.settings.user().map(str::to_owned),
            port: cloud.settings.ssh_port,
            identity_file,
            host_key: public_key(&folder, tag.key.as_str()),
            jump: None,
            private_address: instance.private_address().map(|address| address.to_string()),
            relay: None,
        },
        site: Box::default(),
    })
}
