//! An in-memory site whose responses can be lost.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::SignedDuration;

use super::super::*;
use crate::event::Bus;
use crate::name::{Owner, Tag};
use crate::provider::{
    Acquired, Booking, CalendarRow, Capability, EndAsk, Finding, GpuOffer, HostFilter, HostPlace, HostRequest, Lease,
    LeaseState, ObservedResource, Offer, ProviderKind, Recorder, ResourceKind, ResourceRequest, ResourceState,
    StartAsk, UserEnvironment,
};
use crate::state::Paths;
use crate::util::when;

/// What goes wrong with the next call that creates a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call never arrives.
    CutBefore,
    /// The call takes effect, but the response is lost.
    CutAfter,
    /// The call takes effect, but the journal cannot be written.
    NotJournalled,
    /// The call is refused.
    Refused,
}

#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) hosts: Vec<String>,
    pub(crate) leases: Vec<Lease>,
    pub(crate) fault: Option<Fault>,
    pub(crate) posts: usize,
}

/// An in-memory site.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory(pub(crate) Arc<Mutex<World>>);

impl Memory {
    pub(crate) fn with(hosts: &[&str]) -> Self {
        let memory = Self::default();
        memory.0.lock().unwrap().hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        memory
    }

    pub(crate) fn fails(&self, fault: Fault) {
        self.0.lock().unwrap().fault = Some(fault);
    }

    pub(crate) fn leases(&self) -> Vec<Lease> {
        self.0.lock().unwrap().leases.clone()
    }

    /// Adds a lease of a host; `from` and `to` are hours from now.
    pub(crate) fn book(&self, name: &str, host: &str, from: i64, to: i64, ours: bool, tag: Option<&str>) {
        let at = |hours| when::later(when::floor(Timestamp::now()), SignedDuration::from_hours(hours));
        let mut world = self.0.lock().unwrap();
        let id = format!("id-{}", world.leases.len());
        world.leases.push(Lease {
            id,
            name: name.to_owned(),
            state: if from <= 0 { LeaseState::Active } else { LeaseState::Pending },
            status: "ACTIVE".to_owned(),
            start: at(from),
            end: at(to),
            place: "MEM".to_owned(),
            hosts: vec![host.to_owned()],
            degraded: false,
            ours,
            tag: tag.map(|tag| tag.parse().unwrap()),
        });
    }
}

#[async_trait]
impl Provider for Memory {
    fn capability(&self) -> Capability {
        Capability {
            kind: ProviderKind::Host,
            costs_money: true,
            extend: true,
            reserves: true,
            hosts_vanish: true,
            is_here: false,
            host_key_in_user_data: false,
            boot: Duration::ZERO,
            several_resources: true,
            behind_first: false,
            poll: crate::provider::USUAL_POLL,
            shared_account: true,
            consistency_delay: Duration::from_millis(20),
            runtimes: &[],
            most_hosts: None,
        }
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        Ok(Vec::new())
    }

    async fn owned(&self, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>> {
        let of = |lease: Lease| {
            let tag = lease.tag.clone().filter(|tag| tag.owner == *owner)?;
            let found = ObservedResource {
                digest: None,
                key: tag.key.clone(),
                kind: ResourceKind("lease".to_owned()),
                id: lease.id,
                state: match lease.state {
                    LeaseState::Active => ResourceState::Usable,
                    LeaseState::Pending => ResourceState::Coming,
                    _ => ResourceState::Unusable,
                },
                adopted: false,
                until: Some(lease.end),
                detail: String::new(),
            };
            Some((tag, found))
        };
        Ok(self.leases().into_iter().filter_map(of).collect())
    }

    fn reservations(&self) -> Option<&dyn Reservations> {
        Some(self)
    }

    fn expand(&self, _scope: &Scope, _request: &HostRequest) -> Result<Vec<ResourceRequest>> {
        Ok(Vec::new())
    }

    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired> {
        let fault = self.0.lock().unwrap().fault.take();
        let lost =
            || Error::new(ErrorKind::Provider, format!("acquire {tag}")).because("cut").left(LeftBehind::Unknown);
        match fault {
            Some(Fault::CutBefore) => return Err(lost()),
            Some(Fault::Refused) => return Err(Error::new(ErrorKind::Provider, "acquire").because("no")),
            _ => {}
        }
        let id = {
            let mut world = self.0.lock().unwrap();
            world.posts += 1;
            let id = format!("id-{}", world.leases.len());
            let start: Timestamp = request.settings["start"].as_str().unwrap().parse().unwrap();
            let state = if start <= Timestamp::now() { LeaseState::Active } else { LeaseState::Pending };
            let hosts = request.settings["hosts"].as_array().unwrap().iter();
            world.leases.push(Lease {
                id: id.clone(),
                name: format!("{}-{tag}", request.settings["name"].as_str().unwrap()),
                state,
                status: "ACTIVE".to_owned(),
                start,
                end: request.settings["end"].as_str().unwrap().parse().unwrap(),
                place: "MEM".to_owned(),
                hosts: hosts.map(|host| host.as_str().unwrap().to_owned()).collect(),
                degraded: false,
                ours: true,
                tag: Some(tag.clone()),
            });
            id
        };
        // A call takes a while, during which others may read.
        tokio::time::sleep(Duration::from_millis(5)).await;
        if matches!(fault, Some(Fault::CutAfter | Fault::NotJournalled)) {
            return Err(lost());
        }
        recorder.exists(&tag.key, &id).await?;
        Ok(Acquired { id, was_there: false })
    }

    async fn release(&self, _scope: &Scope, _resource: &ObservedResource) -> Result<()> {
        Ok(())
    }

    async fn place(&self, _tag: &Tag, _id: &str) -> Result<HostPlace> {
        Err(Error::new(ErrorKind::Provider, "find a host"))
    }

    fn refused_request(&self, key: &Key) -> ResourceRequest {
        request(key, serde_json::Value::Null)
    }
}

fn request(key: &Key, settings: serde_json::Value) -> ResourceRequest {
    ResourceRequest {
        key: key.clone(),
        kind: ResourceKind("lease".to_owned()),
        settings,
        found: Finding::default(),
        adopted: None,
        needs: Vec::new(),
        is_host: false,
    }
}

#[async_trait]
impl Reservations for Memory {
    async fn calendar(&self, _filter: &HostFilter, _until: Timestamp) -> Result<Vec<CalendarRow>> {
        let world = self.0.lock().unwrap();
        let row = |name: &String| CalendarRow {
            name: name.clone(),
            id: name.clone(),
            place: "MEM".to_owned(),
            kind: "gpu".to_owned(),
            cpus: 64,
            memory: 1 << 38,
            gpus: vec![GpuOffer { model: "NVIDIA A100".to_owned(), count: Some(2) }],
            gpus_from: None,
            price_per_hour: crate::money::HourlyPrice::service_units(4.0),
            closed: None,
            bookings: world
                .leases
                .iter()
                .filter(|lease| lease.hosts.contains(name))
                .map(|lease| Booking {
                    start: lease.start,
                    end: lease.end,
                    lease: Some(lease.id.clone()),
                    holder: Some(lease.name.clone()),
                    ours: lease.ours,
                })
                .collect(),
        };
        Ok(world.hosts.iter().map(row).collect())
    }

    async fn propose(&self, _scope: &Scope, key: &Key, ask: &LeaseAsk) -> Result<Proposal> {
        let (now, start) = match ask.start {
            StartAsk::Next | StartAsk::Now => (true, Timestamp::now()),
            StartAsk::At(start) => (false, start),
        };
        let end = match ask.end {
            EndAsk::After(length) => when::later(start, length),
            EndAsk::At(end) => end,
        };
        let hosts = ask.hosts.nodes.clone();
        let is_taken = |lease: &Lease| {
            lease.start < end && start < lease.end && lease.hosts.iter().any(|host| hosts.contains(host))
        };
        if Memory::leases(self).iter().any(is_taken) {
            return Err(Error::new(ErrorKind::Capacity, "propose a lease"));
        }
        let name = ask.name.clone().unwrap_or_else(|| "me".to_owned());
        let settings = serde_json::json!({ "name": name, "hosts": hosts, "start": start, "end": end });
        Ok(Proposal {
            price_per_hour: None,
            name,
            hosts,
            place: "MEM".to_owned(),
            start,
            now,
            end,
            price: "12 SU".to_owned(),
            notes: Vec::new(),
            request: request(key, settings),
        })
    }

    async fn leases(&self) -> Result<Vec<Lease>> {
        Ok(Memory::leases(self))
    }

    async fn lease(&self, name: &str) -> Result<Lease> {
        let found = Memory::leases(self).into_iter().find(|lease| lease.id == name || lease.name == name);
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("find the lease {name}")))
    }

    async fn extend(&self, id: &str, end: EndAsk, _may_shorten: bool) -> Result<Lease> {
        let mut world = self.0.lock().unwrap();
        let lease = world.leases.iter_mut().find(|lease| lease.id == id).unwrap();
        lease.end = match end {
            EndAsk::After(length) => when::later(lease.end, length),
            EndAsk::At(at) => at,
        };
        Ok(lease.clone())
    }

    async fn delete(&self, id: &str) -> Result<()> {
        self.0.lock().unwrap().leases.retain(|lease| lease.id != id);
        Ok(())
    }

    async fn wait_active(&self, id: &str) -> Result<Lease> {
        self.lease(id).await
    }
}

/// Settings with all folders below one root.
pub(crate) fn settings_in(root: &std::path::Path) -> Settings {
    let folder = |name: &str| root.join(name);
    let (events, _inbox) = Bus::new();
    let (_handle, cancel) = crate::engine::Cancel::new();
    Settings {
        paths: Paths {
            config: folder("config"),
            state: folder("state"),
            data: folder("data"),
            cache: folder("cache"),
            runtime: folder("run"),
        },
        owner: "abcd1234".parse().unwrap(),
        library: crate::render::Library::new(Vec::new()),
        program: folder("gpucl"),
        environment: Vec::new(),
        host_environment: Vec::new(),
        user_environment: UserEnvironment::default(),
        events,
        cancel,
    }
}

pub(crate) fn source() -> LeaseSource {
    LeaseSource { provider: "memory".to_owned(), settings: serde_json::json!({}), place: String::new() }
}
