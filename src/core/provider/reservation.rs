//! Hosts reserved by name and time, for providers with [`Capability::reserves`](super::Capability::reserves).

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{GpuOffer, ResourceRequest};
use crate::error::Result;
use crate::money::HourlyPrice;
use crate::name::{Key, Scope, Tag};

/// Selects hosts. Absent fields match every host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFilter {
    /// Exactly these, by name.
    pub nodes: Vec<String>,
    /// The provider's type of host: `compute_liqid`.
    pub kind: Option<String>,
    /// A part of the GPU's product name, case-insensitive: `a100`.
    pub gpu: Option<String>,
    /// The minimum number of GPUs per host.
    pub gpus: Option<u32>,
}

/// One reservation of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Booking {
    /// When it begins.
    pub start: Timestamp,
    /// When it ends.
    pub end: Timestamp,
    /// The id of the lease, if the service reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The name of the lease, project or user that holds it, if the service reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// It was made by the logged-in user.
    #[serde(default)]
    pub ours: bool,
}

/// One reservable host and its bookings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalendarRow {
    /// The host's name: `liqid01`.
    pub name: String,
    /// The service's id for it.
    pub id: String,
    /// The site: `CHI@TACC`.
    pub place: String,
    /// The type of host: `compute_liqid`; empty if not reported.
    pub kind: String,
    /// Logical processors; 0 if not reported.
    pub cpus: u32,
    /// Memory in bytes; 0 if not reported.
    pub memory: u64,
    /// The host's GPUs.
    pub gpus: Vec<GpuOffer>,
    /// The source of the GPU data if not the service: the built-in table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_from: Option<String>,
    /// The price of an hour; `None` if not reported.
    pub price_per_hour: Option<HourlyPrice>,
    /// Why it cannot be reserved; `None` if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// Its bookings, ordered by time.
    pub bookings: Vec<Booking>,
}

/// The requested start of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAsk {
    /// As soon as all hosts are free for long enough, possibly now.
    Next,
    /// Now, else fail.
    Now,
    /// At this time, else fail.
    At(Timestamp),
}

/// The requested end of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndAsk {
    /// After this long.
    After(SignedDuration),
    /// At this time.
    At(Timestamp),
}

/// A request for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseAsk {
    /// The hosts: all named ones; without names, `count` of those that match the filter.
    pub hosts: HostFilter,
    /// The number of hosts, if none is named.
    pub count: u32,
    /// When it begins.
    pub start: StartAsk,
    /// When it ends.
    pub end: EndAsk,
    /// The name; if absent, made from user, node and time. The tag is added to it.
    pub name: Option<String>,
    /// Accept less time than requested rather than fail.
    pub shorten: bool,
}

/// A lease that is available: what will be requested.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Proposal {
    /// The name, without the tag.
    pub name: String,
    /// The hosts, by name.
    pub hosts: Vec<String>,
    /// The site.
    pub place: String,
    /// When it begins.
    pub start: Timestamp,
    /// It begins as soon as it is created.
    pub now: bool,
    /// When it ends.
    pub end: Timestamp,
    /// The total price, such as `12 SU`; empty if unknown.
    pub price: String,
    /// The price of an hour, if known.
    pub price_per_hour: Option<HourlyPrice>,
    /// Notes to show beforehand, such as that the end was moved, and why.
    pub notes: Vec<String>,
    /// The request that acquires it.
    pub request: ResourceRequest,
}

/// The state of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseState {
    /// Its time has not come.
    Pending,
    /// It is being started, updated or ended.
    Changing,
    /// Its hosts can be used.
    Active,
    /// Its end has passed.
    Ended,
    /// It failed at the service.
    Failed,
}

/// A lease as reported by the service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// The service's id.
    pub id: String,
    /// The full name, with the tag.
    pub name: String,
    /// The state, as gpucl interprets it.
    pub state: LeaseState,
    /// The service's own word for the state.
    pub status: String,
    /// When it begins.
    pub start: Timestamp,
    /// When it ends.
    pub end: Timestamp,
    /// The site.
    pub place: String,
    /// The names of its hosts.
    pub hosts: Vec<String>,
    /// Some of its hosts have failed.
    #[serde(default)]
    pub degraded: bool,
    /// It was made by the logged-in user.
    pub ours: bool,
    /// The tag in its name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
}

/// Operations on leases. A lease is acquired as a resource, by [`Provider::acquire`](super::Provider::acquire).
#[async_trait]
pub trait Reservations: Send + Sync {
    /// The reservable hosts that match, with their bookings up to `until`. Read-only.
    async fn calendar(&self, filter: &HostFilter, until: Timestamp) -> Result<Vec<CalendarRow>>;

    /// The lease that would be requested; the error lists the free slots if it is unavailable. Read-only.
    async fn propose(&self, scope: &Scope, key: &Key, ask: &LeaseAsk) -> Result<Proposal>;

    /// All leases of the project. Read-only.
    async fn leases(&self) -> Result<Vec<Lease>>;

    /// The lease with this name or id; the error lists the existing ones. Read-only.
    async fn lease(&self, name: &str) -> Result<Lease>;

    /// Moves the end and waits until the service has applied it.
    async fn extend(&self, id: &str, end: EndAsk, may_shorten: bool) -> Result<Lease>;

    /// Deletes it and waits until it is gone; succeeds if it is already gone.
    async fn delete(&self, id: &str) -> Result<()>;

    /// Waits until it is active, and reports progress.
    async fn wait_active(&self, id: &str) -> Result<Lease>;
}
