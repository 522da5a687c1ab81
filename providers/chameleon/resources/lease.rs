//! Leases: acquired once per tag, awaited until active, deleted and verified as gone.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize as _;
use serde_json::Value;

use crate::chameleon::api::{Effect, Failure, FailureKind, Lease, NewLease, NewReservation, Site};
use crate::chameleon::cloud::Cloud;
use crate::chameleon::found::{LeaseFound, SharedFound, Wanted};
use crate::chameleon::leases::{describe_degraded, is_degraded, is_leaving, state_of, tag_of, title};
use crate::chameleon::proposal::no_slot;
use crate::chameleon::slots;
use crate::error::{Doing as _, Error, ErrorKind, LeftBehind, Result, Status};
use crate::event::EventKind;
use crate::name::{Key, Tag};
use crate::provider::{Acquired, LeaseState, ObservedResource, Outage, ResourceRequest, ResourceState};
use crate::provider::{EndAsk, HostFilter, LeaseAsk, StartAsk};
use crate::util::when;

use super::{ChameleonResource, LISTS};

/// How long a lease may take from its start to active: the service polls every 10 s, and starts leases one by one.
const START_LIMIT: SignedDuration = SignedDuration::from_mins(10);
/// How long deleting a lease may take: its servers are deleted first.
const END_LIMIT: Duration = Duration::from_secs(5 * 60);
/// The longest interval between polls of a pending lease.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(20);

/// Turns a lease into a resource under this key.
pub(super) fn as_resource(lease: &Lease, key: &Key) -> ObservedResource {
    let lease_state = state_of(lease);
    let detail = match lease_state {
        LeaseState::Ended => "it has ended".to_owned(),
        LeaseState::Failed => "the reservation service failed on it".to_owned(),
        LeaseState::Pending => format!("it begins at {}", when::local(lease.start, &jiff::tz::TimeZone::system())),
        _ if is_leaving(lease) => "it is ending".to_owned(),
        _ if lease.degraded => "it is degraded: one of its hosts has failed".to_owned(),
        _ => String::new(),
    };
    ObservedResource {
        state: match lease_state {
            LeaseState::Active => ResourceState::Usable,
            LeaseState::Pending | LeaseState::Changing if !is_leaving(lease) => ResourceState::Coming,
            _ => ResourceState::Unusable,
        },
        until: Some(lease.end),
        detail,
        ..ObservedResource::existing(key.clone(), ChameleonResource::Lease.name(), &lease.id)
    }
}

/// The resource of a tagged lease.
pub(super) fn observed(lease: &Lease) -> Option<(Tag, ObservedResource)> {
    let tag = tag_of(lease)?;
    let resource = as_resource(lease, &tag.key);
    Some((tag, resource))
}

/// Our user's leases with this tag.
async fn tagged(site: &Site, tag: &Tag) -> Result<Vec<Lease>> {
    let (who, leases) = tokio::try_join!(site.who(), site.leases())?;
    Ok(leases.into_iter().filter(|lease| lease.user_id == who.user_id && tag_of(lease).as_ref() == Some(tag)).collect())
}

fn is_there(leases: &[Lease]) -> Option<Acquired> {
    let lease = leases.iter().find(|lease| state_of(lease) != LeaseState::Ended && !is_leaving(lease))?;
    Some(Acquired { id: lease.id.clone(), was_there: true })
}

/// Creates the lease of this tag, or finds it.
pub(super) async fn acquire(cloud: &Cloud, tag: &Tag, request: &ResourceRequest) -> Result<Acquired> {
    let wanted = match &request.settings["hosts"] {
        Value::Null => Wanted::default(),
        hosts => {
            Wanted::deserialize(hosts).doing(ErrorKind::Internal, || format!("read which hosts {tag} asks for"))?
        }
    };
    let found: Option<SharedFound> = request.found.read()?;
    let site = cloud.site_with(&wanted.nodes).await?;
    let before = tagged(site, tag).await?;
    if let Some(there) = is_there(&before) {
        return Ok(there);
    }
    let mut calendar = None;
    let (start, end, hosts) = match found.as_ref().map(|found| found.lease.clone()) {
        Some(LeaseFound::New { start, end, hosts }) => (start, end, hosts),
        // No finding, or one that no longer applies: search for a slot now.
        _ => {
            let ask = LeaseAsk {
                hosts: HostFilter { nodes: wanted.nodes, kind: wanted.kind, gpu: wanted.gpu, gpus: wanted.gpus },
                count: u32::try_from(wanted.count).unwrap_or(1).max(1),
                start: StartAsk::Next,
                end: EndAsk::After(SignedDuration::from_hours(1)),
                name: None,
                shorten: true,
            };
            let current = calendar.insert(cloud.calendar_now(&ask.hosts.nodes).await?);
            let slot = slots::plan(&current.rows, &ask, &cloud.policy(), Timestamp::now(), &cloud.zone())
                .map_err(|none| no_slot(cloud, &none, &ask))?;
            ((!slot.now).then_some(slot.start), slot.end, slot.hosts)
        }
    };
    let calendar = match calendar {
        Some(calendar) => calendar,
        None => cloud.calendar_now(&hosts).await?,
    };
    let title = found.as_ref().and_then(|found| found.title.as_deref()).unwrap_or(tag.cluster.as_str());
    let reservations = hosts.iter().map(|host| {
        let (property, value) = calendar.selector(host);
        NewReservation::host(property, &value)
    });
    let new = NewLease {
        name: format!("{title} {tag}"),
        // A planned start that has passed means now.
        start: start.filter(|start| *start > Timestamp::now()),
        end,
        reservations: reservations.collect(),
    };
    let failure = match site.create_lease(&new).await {
        Ok(lease) => return Ok(Acquired { id: lease.id, was_there: false }),
        Err(failure) => failure,
    };
    match failure.kind {
        FailureKind::NameTaken => {
            // Only our lease ends in this tag: an ended one keeps its name until it is deleted.
            for over in tagged(site, tag).await? {
                if let Some(there) = is_there(std::slice::from_ref(&over)) {
                    return Ok(there);
                }
                delete(cloud, &over.id).await?;
            }
            let lease = site.create_lease(&new).await?;
            Ok(Acquired { id: lease.id, was_there: false })
        }
        FailureKind::NotEnough => Err(taken(cloud, &hosts, start, end, failure).await),
        _ if failure.effect == Effect::Unknown => found_again(cloud, site, tag, failure).await,
        _ => Err(failure.into()),
    }
}

/// The response was lost, but the lease may exist: polls the list until it would show.
async fn found_again(cloud: &Cloud, site: &Site, tag: &Tag, failure: Failure) -> Result<Acquired> {
    cloud.context.events.note(format!("{}: {}; checking whether the lease exists anyway", failure.doing, failure.text));
    let find = || async { Ok(is_there(&tagged(site, tag).await?).map(|there| there.id)) };
    LISTS.find_made(failure, find).await
}

/// The service answers "not enough hosts" for a taken, a closed and an unknown host: the calendar shows which it is.
async fn taken(cloud: &Cloud, hosts: &[String], start: Option<Timestamp>, end: Timestamp, failure: Failure) -> Error {
    let now = Timestamp::now();
    let ask = LeaseAsk {
        hosts: HostFilter { nodes: hosts.to_vec(), ..HostFilter::default() },
        count: 1,
        start: start.map_or(StartAsk::Now, StartAsk::At),
        end: EndAsk::At(end),
        name: None,
        shorten: false,
    };
    let calendar = cloud.calendar_now(hosts).await;
    let refused =
        calendar.ok().and_then(|calendar| slots::plan(&calendar.rows, &ask, &cloud.policy(), now, &cloud.zone()).err());
    match refused {
        Some(none) => no_slot(cloud, &none, &ask).because(format!("the service says: {}", failure.text)),
        None => Error::from(failure)
            .because("the calendar shows the host as free: it may have just failed, or be reserved for others")
            .hint(format!("gpucl calendar --node {}", hosts.join(" --node "))),
    }
}

/// Waits until a lease is active, and reports the wait.
pub(in crate::chameleon) async fn wait_active(cloud: &Cloud, id: &str) -> Result<Lease> {
    let site = cloud.site().await?;
    let begun = Timestamp::now();
    let mut pause = SignedDuration::from_millis(200);
    let mut reported: Option<LeaseState> = None;
    let mut outage = Outage::new(&cloud.context.events);
    // The limit counts from the lease's start: a machine that is offline until then still finds the lease.
    let mut start = begun;
    let is_over = |start: Timestamp| when::between(start.max(begun), Timestamp::now()) > START_LIMIT;
    loop {
        let doing = || format!("wait for the lease {id}");
        let Some(answer) = outage.outlast(site.lease(id).await, || is_over(start))? else {
            tokio::time::sleep(pause.unsigned_abs()).await;
            continue;
        };
        let Some(lease) = answer else {
            return Err(Error::new(ErrorKind::Provider, doing())
                .because("it no longer exists: somebody deleted it")
                .hint("gpucl lease list --all"));
        };
        let state = state_of(&lease);
        let now = Timestamp::now();
        start = lease.start;
        match state {
            LeaseState::Active => {
                if is_degraded(&lease) {
                    cloud.context.events.warn(describe_degraded(&lease));
                }
                return Ok(lease);
            }
            LeaseState::Ended | LeaseState::Failed => {
                let why = match state {
                    LeaseState::Ended => "it has ended",
                    _ => "the reservation service failed on it (ERROR)",
                };
                let error =
                    Error::new(ErrorKind::Provider, format!("wait for the lease {}", title(&lease))).because(why);
                return Err(match state {
                    LeaseState::Failed => error
                        .status(Status::Temporary)
                        .hint(format!("gpucl lease delete {id}   # then make another"))
                        .hint("if that fails too, its host is out of order: `gpucl calendar` shows others"),
                    _ => error.hint("gpucl lease --node … --hours …"),
                });
            }
            LeaseState::Pending | LeaseState::Changing => {}
        }
        let left = when::between(now, lease.start);
        if reported != Some(state) {
            reported = Some(state);
            let at = when::both(lease.start, &cloud.zone());
            let what = match left.is_positive() {
                true => format!("the lease {} to begin at {at}", title(&lease)),
                false => format!("the lease {} to become active", title(&lease)),
            };
            let limit = left.max(SignedDuration::ZERO) + START_LIMIT;
            let limit_milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            cloud.context.events.send(EventKind::Waiting { what, limit_milliseconds });
        }
        if is_over(start) {
            return Err(Error::new(ErrorKind::Timeout, format!("wait for the lease {}", title(&lease)))
                .because(format!(
                    "it is still {}, {} after its start by this machine's clock",
                    lease.status,
                    when::length(START_LIMIT)
                ))
                .hint(format!("gpucl lease show {id}   # and check this machine's clock")));
        }
        // Polls often at first: by the site's clock the lease may have begun already.
        let longest = left.clamp(SignedDuration::from_secs(1), LONGEST_PAUSE);
        tokio::time::sleep(pause.min(longest).unsigned_abs()).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Deletes a lease, and waits until it is gone.
pub(in crate::chameleon) async fn delete(cloud: &Cloud, id: &str) -> Result<()> {
    let site = cloud.site().await?;
    let begun = Instant::now();
    let mut pause = Duration::from_millis(200);
    let mut asked = false;
    let mut outage = Outage::new(&cloud.context.events);
    let left = || LeftBehind::Remaining(vec![id.to_owned()]);
    loop {
        let answer = outage.outlast(site.lease(id).await, || begun.elapsed() > END_LIMIT);
        match answer.map_err(|error| error.left(left()))? {
            // Polled again below, after a pause.
            None => {}
            Some(None) => return Ok(()),
            Some(Some(lease)) => {
                // A lease being started or changed refuses the call until then; a leaving one needs no second call.
                if !(asked && is_leaving(&lease)) {
                    match site.delete_lease(id).await {
                        Ok(()) => asked = true,
                        Err(failure) if failure.kind == FailureKind::InTransition => {}
                        Err(failure) if failure.effect == Effect::Unknown => asked = true,
                        Err(failure) => {
                            return Err(Error::from(failure).left(left()));
                        }
                    }
                }
                if begun.elapsed() > END_LIMIT {
                    return Err(Error::new(ErrorKind::Timeout, format!("delete the lease {}", title(&lease)))
                        .because(format!("it is still {} after {} s", lease.status, END_LIMIT.as_secs()))
                        .left(left())
                        .hint(format!("gpucl lease delete {id}")));
                }
            }
        }
        if asked && matches!(site.lease(id).await, Ok(None)) {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// The settings of a lease request for these hosts.
pub(in crate::chameleon) fn settings(wanted: &Wanted) -> Value {
    serde_json::json!({ "hosts": wanted })
}
