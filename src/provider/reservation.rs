//! Hosts that are reserved by name and time: what a provider with [`Capability::reserves`](super::Capability::reserves) adds.

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{GpuOffer, ResourceRequest};
use crate::error::Result;
use crate::money::HourlyPrice;
use crate::name::{Key, Scope, Tag};

/// Which hosts are meant. What is absent does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFilter {
    /// Exactly these, by name.
    pub nodes: Vec<String>,
    /// The provider's type of host: `compute_liqid`.
    pub kind: Option<String>,
    /// A part of the GPU's product name, whatever its case: `a100`.
    pub gpu: Option<String>,
    /// At least this many GPUs on one host.
    pub gpus: Option<u32>,
}

/// One reservation of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Booking {
    /// When it begins.
    pub start: Timestamp,
    /// When it ends.
    pub end: Timestamp,
    /// The lease, by its id, where the service tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Who holds it, where the service tells: a lease's, a project's or a user's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// It is ours: our user made it.
    #[serde(default)]
    pub ours: bool,
}

/// One host that can be reserved, and when it is taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalendarRow {
    /// Its name: `liqid01`.
    pub name: String,
    /// The service's own id of it.
    pub id: String,
    /// The site that it is at: `CHI@TACC`.
    pub place: String,
    /// Its type: `compute_liqid`; empty where the service does not tell.
    pub kind: String,
    /// Logical processors; 0 where the service does not tell.
    pub cpus: u32,
    /// Memory in bytes; 0 where the service does not tell.
    pub memory: u64,
    /// Its GPUs.
    pub gpus: Vec<GpuOffer>,
    /// Where the GPUs are known from when the service does not tell: the built-in table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_from: Option<String>,
    /// What an hour costs; `None` where the service does not tell.
    pub price_per_hour: Option<HourlyPrice>,
    /// Why it cannot be reserved; `None` when it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// When it is taken, in the order of time.
    pub bookings: Vec<Booking>,
}

/// When a lease is to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAsk {
    /// At the next time that all hosts are free for long enough; now, if they are.
    Next,
    /// Now, or not at all.
    Now,
    /// At this time, or not at all.
    At(Timestamp),
}

/// When a lease is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndAsk {
    /// After this long.
    After(SignedDuration),
    /// At this time.
    At(Timestamp),
}

/// What a person asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseAsk {
    /// The hosts: all named ones; without names, `count` of the rest of the filter.
    pub hosts: HostFilter,
    /// How many hosts, where none is named.
    pub count: u32,
    /// When it begins.
    pub start: StartAsk,
    /// When it ends.
    pub end: EndAsk,
    /// Its name; made of user, node and time when absent. Our tag is added to it.
    pub name: Option<String>,
    /// Take less time than asked for, rather than refuse.
    pub shorten: bool,
}

/// A lease that could be had: what will be asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Proposal {
    /// Its name, without our tag.
    pub name: String,
    /// The hosts, by name.
    pub hosts: Vec<String>,
    /// The site.
    pub place: String,
    /// When it begins.
    pub start: Timestamp,
    /// It begins as soon as it is made.
    pub now: bool,
    /// When it ends.
    pub end: Timestamp,
    /// What it costs in all, such as `12 SU`; empty where it cannot be told.
    pub price: String,
    /// What else a person should know before: that the end was moved, and why.
    pub notes: Vec<String>,
    /// What acquires it.
    pub request: ResourceRequest,
}

/// How far a lease has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseState {
    /// Its time has not come.
    Pending,
    /// It is being started, changed or ended.
    Changing,
    /// Its hosts can be used.
    Active,
    /// Its time is over.
    Ended,
    /// The service failed on it.
    Failed,
}

/// A lease as the service tells it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// The service's id.
    pub id: String,
    /// Its whole name.
    pub name: String,
    /// How far it has come.
    pub state: LeaseState,
    /// The service's own word for it.
    pub status: String,
    /// When it begins.
    pub start: Timestamp,
    /// When it ends.
    pub end: Timestamp,
    /// The site.
    pub place: String,
    /// Its hosts, by name.
    pub hosts: Vec<String>,
    /// Some of its hosts have failed.
    #[serde(default)]
    pub degraded: bool,
    /// Our user made it.
    pub ours: bool,
    /// The tag in its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
}

/// What is done with leases by their own commands. A lease is acquired as a resource, by [`Provider::acquire`](super::Provider::acquire).
#[async_trait]
pub trait Reservations: Send + Sync {
    /// Hosts that can be reserved, and when they are taken until `until`. Read-only.
    async fn calendar(&self, filter: &HostFilter, until: Timestamp) -> Result<Vec<CalendarRow>>;

    /// What would be asked for; refuses with the free slots when it cannot be had. Read-only.
    async fn propose(&self, scope: &Scope, key: &Key, ask: &LeaseAsk) -> Result<Proposal>;

    /// The leases of the project. Read-only.
    async fn leases(&self) -> Result<Vec<Lease>>;

    /// The lease of this name or id, or an error that says which there are. Read-only.
    async fn lease(&self, name: &str) -> Result<Lease>;

    /// Moves the end; waits until the service has taken it.
    async fn extend(&self, id: &str, end: EndAsk, may_shorten: bool) -> Result<Lease>;

    /// Deletes it, and waits until it is gone; what is gone already is success.
    async fn delete(&self, id: &str) -> Result<()>;

    /// Waits until it is active, and says what it waits for.
    async fn wait_active(&self, id: &str) -> Result<Lease>;
}
