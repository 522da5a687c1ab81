//! An in-memory cloud on the test's clock: it spaces launches, boots for a while, and has limited capacity per region.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::error::{Error, ErrorKind, LeftBehind, Result, Status};
use crate::host::SshTarget;
use crate::money::HourlyPrice;
use crate::name::{Key, Owner, Scope, Tag};
use crate::provider::Runtime;
use crate::provider::{
    Acquired, Capability, Finding, GpuOffer, HostPlace, HostRequest, ObservedResource, Offer, Provider, ProviderKind,
    Recorder, Resolved, ResourceKind, ResourceRequest, ResourceState, USUAL_POLL,
};

/// The time between two launches.
pub(super) const SPACING: Duration = Duration::from_secs(12);
/// The time from a host's launch until it is usable.
pub(super) const BOOT: Duration = Duration::from_secs(240);
/// The poll interval of a capacity wait.
pub(super) const POLL: Duration = Duration::from_secs(20);
/// The regions, in the order of the spec.
pub(super) const REGIONS: [&str; 2] = ["south", "west"];

/// A created resource.
#[derive(Debug, Clone)]
pub(super) struct Thing {
    pub(super) tag: Tag,
    pub(super) id: String,
    pub(super) kind: &'static str,
    pub(super) region: String,
    pub(super) made: Instant,
    pub(super) is_ill: bool,
}

#[derive(Debug)]
pub(super) struct State {
    begun: Instant,
    pub(super) things: Vec<Thing>,
    /// The hosts left in each region.
    stock: BTreeMap<String, usize>,
    deliveries: Vec<(Duration, &'static str, usize)>,
    /// Every launch: its key, region and time.
    pub(super) launches: Vec<(Key, String, Duration)>,
    pub(super) refused: usize,
    /// The times of the queries for capacity.
    pub(super) queries: Vec<Duration>,
    pub(super) observed: usize,
    pub(super) ills: usize,
    /// How many more times the first region is listed as available though it has no capacity.
    pub(super) lies: usize,
    ids: usize,
    /// Each region needs its own set of rules before hosts.
    pub(super) has_rules: bool,
    pub(super) kept_out: bool,
    /// Whether host keys are in user data.
    pub(super) sends_host_keys: bool,
    /// The GPUs promised for each host.
    pub(super) gpus: Vec<GpuOffer>,
}

/// A handle to the cloud.
#[derive(Debug, Clone)]
pub(super) struct Cloud {
    state: Arc<Mutex<State>>,
    pace: Arc<tokio::sync::Mutex<Option<Instant>>>,
}

impl Cloud {
    /// A cloud with this many hosts in its first region.
    pub(super) fn new(stock: usize) -> Self {
        let state = State {
            begun: Instant::now(),
            things: Vec::new(),
            stock: BTreeMap::from([(REGIONS[0].to_owned(), stock)]),
            deliveries: Vec::new(),
            launches: Vec::new(),
            refused: 0,
            queries: Vec::new(),
            observed: 0,
            ills: 0,
            lies: 0,
            ids: 0,
            has_rules: false,
            kept_out: false,
            sends_host_keys: false,
            gpus: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), pace: Arc::default() }
    }

    /// Adds hosts to a region after this time.
    pub(super) fn delivers(&self, after: Duration, region: &'static str, count: usize) {
        self.state().deliveries.push((after, region, count));
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap();
        let now = state.begun.elapsed();
        let (due, later) = std::mem::take(&mut state.deliveries).into_iter().partition(|(at, ..)| *at <= now);
        state.deliveries = later;
        for (_, region, count) in due {
            *state.stock.entry(region.to_owned()).or_default() += count;
        }
        state
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.state().begun.elapsed()
    }

    /// The number of hosts.
    pub(super) fn hosts(&self) -> usize {
        self.state().things.iter().filter(|thing| thing.kind == "instance").count()
    }
}

impl State {
    fn has(&self, region: &str) -> bool {
        self.stock.get(region).is_some_and(|count| *count > 0)
    }
}

fn none_left(doing: String) -> Error {
    Error::new(ErrorKind::Capacity, doing)
        .status(Status::Temporary)
        .because("there is no gpu_1x now; south or west would do")
}

fn region_of(found: &Finding) -> String {
    found.data["region"].as_str().unwrap_or_default().to_owned()
}

fn observed(thing: &Thing) -> ObservedResource {
    ObservedResource {
        digest: None,
        key: thing.tag.key.clone(),
        kind: ResourceKind(thing.kind.to_owned()),
        id: thing.id.clone(),
        state: match thing.kind {
            "instance" if thing.is_ill => ResourceState::Unusable,
            "instance" if thing.made.elapsed() < BOOT => ResourceState::Coming,
            _ => ResourceState::Usable,
        },
        adopted: false,
        until: None,
        detail: if thing.is_ill { "it is unhealthy".to_owned() } else { String::new() },
    }
}

#[async_trait]
impl Provider for Cloud {
    fn capability(&self) -> Capability {
        Capability {
            kind: ProviderKind::Host,
            costs_money: true,
            extend: false,
            reserves: false,
            hosts_vanish: true,
            is_here: false,
            host_key_in_user_data: self.state().sends_host_keys,
            boot: BOOT,
            several_resources: false,
            behind_first: false,
            poll: USUAL_POLL.min(POLL),
            shared_account: true,
            consistency_delay: Duration::ZERO,
            runtimes: &[Runtime::Docker],
            most_hosts: None,
        }
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        Ok(Vec::new())
    }

    async fn owned(&self, _owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>> {
        let mut state = self.state();
        state.observed += 1;
        Ok(state.things.iter().map(|thing| (thing.tag.clone(), observed(thing))).collect())
    }

    async fn resolve(&self, _scope: &Scope, hosts: Vec<HostRequest>) -> Result<Resolved> {
        let mut state = self.state();
        let now = state.begun.elapsed();
        state.queries.push(now);
        if state.kept_out {
            return Err(Error::new(ErrorKind::Provider, "list the offers").because("the key was revoked"));
        }
        let there: Vec<&Thing> = state.things.iter().filter(|thing| thing.kind == "instance").collect();
        let missing = hosts.iter().filter(|host| !there.iter().any(|thing| thing.tag.key == host.key)).count();
        // All hosts of a cluster are in one region.
        let lies = state.lies > 0;
        let there: Vec<Thing> = there.into_iter().cloned().collect();
        state.lies -= usize::from(lies);
        let has = |region: &str| state.has(region) || (lies && region == REGIONS[0]);
        let fixed = there.first().map(|thing| thing.region.clone());
        let region = match fixed {
            Some(region) if missing == 0 || has(&region) => region,
            Some(_) => return Err(none_left("find the hosts".to_owned())),
            None => match REGIONS.iter().find(|region| has(region)) {
                Some(region) => (*region).to_owned(),
                None => return Err(none_left("find the hosts".to_owned())),
            },
        };
        let offer = Offer {
            name: "gpu_1x".to_owned(),
            place: region.clone(),
            cpus: 8,
            memory: 64 << 30,
            gpus: state.gpus.clone(),
            price_per_hour: Some(HourlyPrice::cents(129)),
            free: "now".to_owned(),
        };
        let offers = vec![offer; hosts.len()];
        let found =
            |host: HostRequest| HostRequest { found: Finding::of(&json!({ "region": region })).unwrap(), ..host };
        Ok(Resolved { hosts: hosts.into_iter().map(found).collect(), offers, ..Resolved::default() })
    }

    async fn wait_usable(&self, _tag: &Tag, _request: &ResourceRequest, id: &str) -> Result<()> {
        loop {
            let thing = self.state().things.iter().find(|thing| thing.id == id).cloned();
            let Some(thing) = thing else {
                return Err(Error::new(ErrorKind::Provider, "boot it").because("it is gone"));
            };
            if thing.is_ill {
                let error = Error::new(ErrorKind::Provider, format!("boot {}", thing.tag.key.display_name()));
                return Err(error.because("it is unhealthy").status(Status::Temporary));
            }
            if observed(&thing).is_usable() {
                return Ok(());
            }
            tokio::time::sleep_until(thing.made + BOOT).await;
        }
    }

    fn expand(&self, _scope: &Scope, request: &HostRequest) -> Result<Vec<ResourceRequest>> {
        let rules: Key = "rules0".parse().unwrap();
        let one = |key: &Key, kind: &str, needs: Vec<Key>, is_host| ResourceRequest {
            key: key.clone(),
            kind: ResourceKind(kind.to_owned()),
            settings: request.settings.clone(),
            found: Finding { price: (kind == "instance").then(|| HourlyPrice::cents(129)), ..request.found.clone() },
            adopted: None,
            needs,
            is_host,
        };
        if !self.state().has_rules {
            return Ok(vec![one(&request.key, "instance", Vec::new(), true)]);
        }
        // As at Lambda: the rules depend on the region of the hosts, but their key does not.
        let settings = json!({ "region": region_of(&request.found) });
        let shared = ResourceRequest { settings, ..one(&rules, "rules", Vec::new(), false) };
        Ok(vec![shared, one(&request.key, "instance", vec![rules], true)])
    }

    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired> {
        let region = region_of(&request.found);
        let kind = if request.is_host { "instance" } else { "rules" };
        if request.is_host {
            let mut last = self.pace.lock().await;
            if let Some(last) = *last {
                tokio::time::sleep_until(last + SPACING).await;
            }
            *last = Some(Instant::now());
        }
        let id = {
            let mut state = self.state();
            if request.is_host && !state.has(&region) {
                state.refused += 1;
                let doing = format!("launch {}", tag.key.display_name());
                return Err(none_left(doing).left(LeftBehind::Clear));
            }
            let needs = state.has_rules && request.is_host;
            let ruled = |thing: &Thing| thing.kind == "rules" && thing.region == region;
            assert!(!needs || state.things.iter().any(ruled), "launched in {region} without its rules");
            let twice = state.things.iter().any(|thing| thing.tag == *tag);
            assert!(!twice, "{tag} was made twice");
            state.ids += 1;
            let id = format!("i-{}", state.ids);
            if request.is_host {
                *state.stock.get_mut(&region).unwrap() -= 1;
                let at = state.begun.elapsed();
                state.launches.push((tag.key.clone(), region.clone(), at));
            }
            let is_ill = request.is_host && state.ills > 0;
            state.ills -= usize::from(is_ill);
            let made = Instant::now();
            state.things.push(Thing { tag: tag.clone(), id: id.clone(), kind, region, made, is_ill });
            id
        };
        recorder.exists(&tag.key, &id).await?;
        Ok(Acquired { id, was_there: false })
    }

    async fn release(&self, _scope: &Scope, resource: &ObservedResource) -> Result<()> {
        self.state().things.retain(|thing| thing.id != resource.id);
        Ok(())
    }

    async fn place(&self, tag: &Tag, id: &str) -> Result<HostPlace> {
        let number = id.trim_start_matches("i-");
        if !self.state().things.iter().any(|thing| thing.id == id && thing.tag == *tag) {
            return Err(Error::new(ErrorKind::Provider, format!("find {tag}")).because("it is not there"));
        }
        let private_address = Some(format!("10.0.0.{number}"));
        Ok(HostPlace::Ssh {
            target: SshTarget { node: "localhost".to_owned(), private_address, ..SshTarget::default() },
            site: Box::default(),
        })
    }

    fn refused_request(&self, key: &Key) -> ResourceRequest {
        let settings = Value::Null;
        let kind = ResourceKind("instance".to_owned());
        let (found, adopted) = (Finding::default(), None);
        ResourceRequest { key: key.clone(), kind, settings, found, adopted, needs: Vec::new(), is_host: true }
    }
}
