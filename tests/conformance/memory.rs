//! A provider in memory that keeps the contract, and one deliberate bug at a time that breaks it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gpucl::error::{Error, ErrorKind, LeftBehind, Result, Status};
use gpucl::name::{Key, Scope, Tag};
use gpucl::provider::Runtime;
use gpucl::provider::{
    Acquired, Capability, Finding, HostPlace, HostRequest, ObservedResource, Offer, Provider, ProviderKind, Recorder,
    ResourceKind, ResourceRequest, ResourceState,
};

/// What one broken provider does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    OfferWithoutName,
    OfferWithPriceForNothing,
    ObserveInventsOne,
    ObserveByPrefix,
    ObserveAnyOwner,
    ObserveHidesTheLeaseAlone,
    ObserveTellsAnotherKind,
    AcquireAlwaysMakesOne,
    AcquireSaysNewAlways,
    AcquireRecordsNothing,
    AcquireRecordsOnlyTheNew,
    AcquireIgnoresTheRecorder,
    AcquireRemembersInMemory,
    AcquireForgetsTheHalfMade,
    RefusalIsTemporary,
    RefusalIsUnclear,
    RefusalLeavesOne,
    ExpandIsRandom,
    ExpandNeedsALaterOne,
    ExpandHasTwoHosts,
    PlaceMoves,
    PlaceOfWhatIsGone,
    EffectAfterTheConsistencyDelay,
    SecondReleaseFails,
    ReleaseGoesByKey,
    ReleaseTakesTheOwnersAll,
    ReleaseForgetsTheLease,
    ReleaseCutCannotGoOn,
    ReleaseComesBack,
    PromisesExtend,
}

struct Thing {
    id: String,
    tag: Tag,
    kind: String,
    half: bool,
    leaving: bool,
    /// Hidden by a release that did not last, and when, counted in acquires.
    hidden: Option<usize>,
    visible_from: Instant,
}

#[derive(Default)]
struct World {
    things: Vec<Thing>,
    ids: usize,
    acquires: usize,
    releases: usize,
    places: usize,
    remembered: Vec<(Tag, String)>,
}

pub(crate) struct Memory {
    world: Arc<Mutex<World>>,
    bug: Option<Bug>,
    several: bool,
    consistency_delay: Duration,
    delay: Duration,
}

impl Memory {
    /// One that takes one resource a host, or a lease and a server.
    pub(crate) fn new(several: bool) -> Self {
        let zero = Duration::ZERO;
        Self { world: Arc::default(), bug: None, several, consistency_delay: zero, delay: zero }
    }

    /// Its effects show later, and it says so.
    pub(crate) fn late(mut self) -> Self {
        self.consistency_delay = Duration::from_millis(24);
        self.delay = Duration::from_millis(8);
        self
    }

    /// With one bug.
    pub(crate) fn with(mut self, bug: Bug) -> Self {
        self.bug = Some(bug);
        if bug == Bug::EffectAfterTheConsistencyDelay {
            self.delay = Duration::from_secs(3600);
        }
        self
    }

    /// What is there, whether it shows or not.
    pub(crate) fn left(&self) -> usize {
        self.world.lock().unwrap().things.len()
    }

    /// Number of requests to release something.
    pub(crate) fn releases(&self) -> usize {
        self.world.lock().unwrap().releases
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn find(&self, tag: &Tag) -> Option<(String, bool)> {
        let world = self.world.lock().unwrap();
        let thing = world.things.iter().find(|thing| {
            thing.tag == *tag && !thing.leaving && thing.hidden.is_none() && thing.visible_from <= Instant::now()
        })?;
        Some((thing.id.clone(), thing.half))
    }

    fn make(&self, tag: &Tag, kind: &str, half: bool) -> String {
        let mut world = self.world.lock().unwrap();
        world.ids += 1;
        world.acquires += 1;
        let id = format!("m-{}", world.ids + 1000);
        let thing = Thing {
            id: id.clone(),
            tag: tag.clone(),
            kind: kind.to_owned(),
            half,
            leaving: false,
            hidden: None,
            visible_from: Instant::now() + self.delay,
        };
        world.things.push(thing);
        id
    }

    async fn record(&self, recorder: &dyn Recorder, tag: &Tag, id: &str, was_there: bool) -> Result<()> {
        if self.has(Bug::AcquireRecordsNothing) || (was_there && self.has(Bug::AcquireRecordsOnlyTheNew)) {
            return Ok(());
        }
        let recorded = recorder.exists(&tag.key, id).await;
        if self.has(Bug::AcquireIgnoresTheRecorder) {
            return Ok(());
        }
        recorded.map_err(|error| error.left(LeftBehind::Remaining(vec![id.to_owned()])))
    }

    fn refusal(&self, tag: &Tag) -> Error {
        let error = Error::new(ErrorKind::Provider, format!("acquire {tag}")).because("no such thing");
        match self.bug {
            Some(Bug::RefusalIsTemporary) => error.status(Status::Temporary),
            Some(Bug::RefusalIsUnclear) => error.left(LeftBehind::Unknown),
            _ => error,
        }
    }

    fn holds(&self, scope: &Scope, tag: &Tag) -> bool {
        match self.bug {
            Some(Bug::ObserveByPrefix) => {
                tag.to_string().starts_with(&format!("gpucl-{}-{}", scope.owner, scope.cluster))
            }
            Some(Bug::ObserveAnyOwner) => tag.cluster == scope.cluster,
            _ => scope.holds(tag),
        }
    }
}

#[async_trait]
impl Provider for Memory {
    fn capability(&self) -> Capability {
        Capability {
            kind: ProviderKind::Host,
            costs_money: false,
            extend: self.has(Bug::PromisesExtend),
            reserves: false,
            hosts_vanish: false,
            is_here: false,
            host_key_in_user_data: false,
            boot: Duration::ZERO,
            several_resources: self.several,
            behind_first: false,
            poll: gpucl::provider::USUAL_POLL,
            shared_account: true,
            consistency_delay: self.consistency_delay,
            runtimes: &[Runtime::Native],
            most_hosts: None,
        }
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        let name = if self.has(Bug::OfferWithoutName) { "" } else { "small" };
        let price = self.has(Bug::OfferWithPriceForNothing).then(|| gpucl::money::HourlyPrice::cents(129));
        Ok(vec![Offer {
            name: name.to_owned(),
            place: "memory".to_owned(),
            cpus: 2,
            memory: 1 << 30,
            gpus: Vec::new(),
            price_per_hour: price,
            free: "now".to_owned(),
        }])
    }

    async fn owned(&self, _owner: &gpucl::name::Owner) -> Result<Vec<(Tag, ObservedResource)>> {
        Ok(Vec::new())
    }

    async fn observe(&self, scope: &Scope) -> Result<Vec<ObservedResource>> {
        let world = self.world.lock().unwrap();
        let now = Instant::now();
        let mut seen: Vec<ObservedResource> = world
            .things
            .iter()
            .filter(|thing| self.holds(scope, &thing.tag) && thing.visible_from <= now)
            .filter(|thing| thing.hidden.is_none_or(|at| world.acquires > at))
            .map(|thing| ObservedResource {
                digest: None,
                key: thing.tag.key.clone(),
                kind: ResourceKind(match self.bug {
                    Some(Bug::ObserveTellsAnotherKind) => "thing".to_owned(),
                    _ => thing.kind.clone(),
                }),
                id: thing.id.clone(),
                state: match thing.half || thing.leaving {
                    true => ResourceState::Unusable,
                    false => ResourceState::Usable,
                },
                adopted: false,
                until: None,
                detail: String::new(),
            })
            .collect();
        if self.has(Bug::ObserveHidesTheLeaseAlone) && !seen.iter().any(|resource| resource.kind.0 == "server") {
            seen.clear();
        }
        if self.has(Bug::ObserveInventsOne) {
            seen.push(ObservedResource {
                digest: None,
                key: Key::worker(7),
                kind: ResourceKind("server".to_owned()),
                id: "m-7".to_owned(),
                state: ResourceState::Usable,
                adopted: false,
                until: None,
                detail: String::new(),
            });
        }
        Ok(seen)
    }

    fn expand(&self, _scope: &Scope, request: &HostRequest) -> Result<Vec<ResourceRequest>> {
        let mut world = self.world.lock().unwrap();
        world.ids += 1;
        let salt = if self.has(Bug::ExpandIsRandom) { world.ids.to_string() } else { String::new() };
        let key: Key = format!("{}{salt}", request.key).parse().unwrap();
        let lease: Key = format!("lease{key}").parse().unwrap();
        let resource = |key: &Key, kind: &str, needs: Vec<Key>, is_host| ResourceRequest {
            key: key.clone(),
            kind: ResourceKind(kind.to_owned()),
            settings: request.settings.clone(),
            needs,
            is_host,
            found: Finding::default(),
            adopted: None,
        };
        if !self.several {
            return Ok(vec![resource(&key, "server", Vec::new(), true)]);
        }
        let early = if self.has(Bug::ExpandNeedsALaterOne) { vec![key.clone()] } else { Vec::new() };
        Ok(vec![
            resource(&lease, "lease", early, self.has(Bug::ExpandHasTwoHosts)),
            resource(&key, "server", vec![lease], true),
        ])
    }

    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired> {
        tokio::task::yield_now().await;
        if request.settings.get("refuse").is_some() {
            if self.has(Bug::RefusalLeavesOne) {
                self.make(tag, &request.kind.0, true);
            }
            return Err(self.refusal(tag));
        }
        let found = match self.bug {
            Some(Bug::AcquireAlwaysMakesOne) => None,
            Some(Bug::AcquireRemembersInMemory) => {
                let world = self.world.lock().unwrap();
                let there = |id: &String| world.things.iter().any(|thing| thing.id == *id);
                let known = world.remembered.iter().find(|(of, id)| of == tag && there(id));
                known.map(|(_, id)| (id.clone(), false))
            }
            Some(Bug::AcquireForgetsTheHalfMade) => self.find(tag).filter(|(_, half)| !half),
            _ => self.find(tag),
        };
        let (id, was_there) = match found {
            Some((id, half)) => (id, !half),
            None => (self.make(tag, &request.kind.0, true), false),
        };
        tokio::task::yield_now().await;
        if let Some(thing) = self.world.lock().unwrap().things.iter_mut().find(|thing| thing.id == id) {
            thing.half = false;
        }
        self.record(recorder, tag, &id, was_there).await?;
        self.world.lock().unwrap().remembered.push((tag.clone(), id.clone()));
        Ok(Acquired { id, was_there: was_there && !self.has(Bug::AcquireSaysNewAlways) })
    }

    async fn release(&self, scope: &Scope, resource: &ObservedResource) -> Result<()> {
        let meant = |thing: &Thing| match self.bug {
            Some(Bug::ReleaseGoesByKey) => scope.holds(&thing.tag) && thing.tag.key == resource.key,
            Some(Bug::ReleaseTakesTheOwnersAll) => thing.tag.owner == scope.owner,
            // Release takes the observed resource, so a wrong observation is not corrected here.
            _ => thing.id == resource.id,
        };
        let mut ids = BTreeSet::new();
        {
            let mut world = self.world.lock().unwrap();
            let acquires = world.acquires;
            world.releases += 1;
            for thing in world.things.iter_mut().filter(|thing| meant(thing)) {
                if self.has(Bug::ReleaseForgetsTheLease) && thing.kind == "lease" {
                    continue;
                }
                if self.has(Bug::ReleaseComesBack) {
                    thing.hidden = Some(acquires);
                    continue;
                }
                if thing.leaving && self.has(Bug::ReleaseCutCannotGoOn) {
                    return Err(Error::new(ErrorKind::Provider, format!("release {}", thing.tag)).because("conflict"));
                }
                thing.leaving = true;
                ids.insert(thing.id.clone());
            }
        }
        if ids.is_empty() && self.has(Bug::SecondReleaseFails) {
            return Err(Error::new(ErrorKind::Provider, format!("release {}", resource.id)).because("not found"));
        }
        tokio::task::yield_now().await;
        self.world.lock().unwrap().things.retain(|thing| !ids.contains(&thing.id));
        Ok(())
    }

    async fn place(&self, tag: &Tag, id: &str) -> Result<HostPlace> {
        let mut world = self.world.lock().unwrap();
        world.places += 1;
        let there = world.things.iter().any(|thing| thing.tag == *tag && thing.id == id && !thing.half);
        let folder = std::env::temp_dir();
        if self.has(Bug::PlaceMoves) && world.places.is_multiple_of(2) {
            return Ok(HostPlace::Local { folder: folder.join(".."), claim: String::new() });
        }
        if there || self.has(Bug::PlaceOfWhatIsGone) {
            return Ok(HostPlace::Local { folder, claim: String::new() });
        }
        Err(Error::new(ErrorKind::Provider, format!("find {tag}")).because("it is not there"))
    }

    fn refused_request(&self, key: &Key) -> ResourceRequest {
        ResourceRequest {
            key: key.clone(),
            kind: ResourceKind("server".to_owned()),
            settings: serde_json::json!({ "refuse": true }),
            needs: Vec::new(),
            is_host: true,
            found: Finding::default(),
            adopted: None,
        }
    }
}
