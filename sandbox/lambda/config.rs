//! What a stand-in is to be like.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;

use super::super::clock::TimeSource;
use super::catalog;
use super::hosts::Hosts;

/// How a stand-in of Lambda behaves; the default has Lambda's own times and limits.
#[derive(Debug, Clone)]
pub struct Config {
    /// The port on the loopback; 0 for any.
    pub port: u16,
    /// The regions.
    pub regions: Vec<RegionConfig>,
    /// The instance types.
    pub types: Vec<TypeConfig>,
    /// The images; each is in every region.
    pub images: Vec<ImageConfig>,
    /// How many of a type are free in a region; what is not named has none.
    pub capacity: BTreeMap<(String, String), u32>,
    /// The server's clock against ours.
    pub clock_offset: SignedDuration,
    /// What the clock counts; absent for the runtime's time.
    pub time: Option<Arc<dyn TimeSource>>,
    /// At least so long between two requests.
    pub request_every: Duration,
    /// At least so long between two launches.
    pub launch_every: Duration,
    /// What the way here may take of it.
    pub slack: Duration,
    /// What a request that comes too soon is told.
    pub too_fast: TooFast,
    /// From a launch until the instance is active; a type can have its own.
    pub boot: Duration,
    /// From a launch until the instance shows its address; it may be later than `boot`.
    pub address: Duration,
    /// From `active` until sshd answers; only hosts that something makes know it.
    pub silent: Duration,
    /// How long a restart takes.
    pub restart: Duration,
    /// How long an instance is terminating.
    pub terminating: Duration,
    /// How long a terminated one stays in the list.
    pub linger: Duration,
    /// What is made shows up in lists only after this long.
    pub late: Duration,
    /// How many instances the account may have.
    pub instance_quota: usize,
    /// How many file systems.
    pub file_system_quota: usize,
    /// How many rulesets.
    pub ruleset_quota: usize,
    /// A second key of one name is refused, as Lambda was seen to do ("Key name must be unique"). The document says nothing of it, and two keys
    /// show a client that asks twice.
    pub unique_key_names: bool,
    /// What a launch is told that names something that is not there: 400 or 404, the document has both.
    pub missing: u16,
    /// Answers have fields and values that the document does not know, as it warns of.
    pub unknown_fields: bool,
    /// How the account stands.
    pub account: Account,
    /// Something outside tells the addresses of instances, and no instance is active before.
    pub wired: bool,
    /// What makes hosts of instances in this process.
    pub hosts: Option<Arc<dyn Hosts>>,
    /// Deliberate bugs, so that a test can show that it would notice.
    pub bugs: BTreeSet<Bug>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: 0,
            regions: catalog::regions(),
            types: catalog::types(),
            images: catalog::images(),
            capacity: catalog::capacity(),
            clock_offset: SignedDuration::ZERO,
            time: None,
            request_every: Duration::from_secs(1),
            launch_every: Duration::from_secs(12),
            slack: Duration::from_millis(50),
            too_fast: TooFast::Refused { retry_after: true },
            boot: Duration::from_secs(240),
            address: Duration::from_secs(90),
            silent: Duration::from_secs(20),
            restart: Duration::from_secs(90),
            terminating: Duration::from_secs(40),
            linger: Duration::from_secs(300),
            late: Duration::ZERO,
            instance_quota: 40,
            file_system_quota: 24,
            ruleset_quota: 100,
            unique_key_names: false,
            missing: 400,
            unknown_fields: false,
            account: Account::Open,
            wired: false,
            hosts: None,
            bugs: BTreeSet::new(),
        }
    }
}

impl Config {
    /// One in which nobody waits: there are no limits, and what is asked for is there when the answer comes.
    pub fn prompt() -> Self {
        Self {
            request_every: Duration::ZERO,
            launch_every: Duration::ZERO,
            boot: Duration::ZERO,
            address: Duration::ZERO,
            silent: Duration::ZERO,
            restart: Duration::ZERO,
            terminating: Duration::ZERO,
            types: catalog::types().into_iter().map(|kind| TypeConfig { boot: None, ..kind }).collect(),
            ..Self::default()
        }
    }

    /// So many of this type are free in this region.
    #[must_use]
    pub fn with_capacity(mut self, kind: &str, region: &str, count: u32) -> Self {
        self.capacity.insert((kind.to_owned(), region.to_owned()), count);
        self
    }

    /// Nothing is free anywhere.
    #[must_use]
    pub fn without_capacity(mut self) -> Self {
        self.capacity.clear();
        self
    }
}

/// What a request that comes too soon is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooFast {
    /// 429, with or without the header that says when to come again.
    Refused {
        /// Whether it has `Retry-After`.
        retry_after: bool,
    },
    /// Nothing: it is answered, and counted.
    Counted,
}

/// A region.
#[derive(Debug, Clone)]
pub struct RegionConfig {
    /// `us-west-1`.
    pub name: String,
    /// `California, USA`.
    pub description: String,
    /// Whether it has firewall rules and rulesets at all.
    pub firewall: bool,
}

/// An instance type.
#[derive(Debug, Clone)]
pub struct TypeConfig {
    /// `gpu_1x_a10`.
    pub name: String,
    /// `A10 (24 GB PCIe)`.
    pub gpu: String,
    /// How many GPUs.
    pub gpus: u32,
    /// Its price in cents an hour.
    pub cents: u32,
    /// Virtual processors.
    pub vcpus: u32,
    /// Memory.
    pub memory_gib: u32,
    /// Disk.
    pub storage_gib: u32,
    /// Whether its processors are of ARM.
    pub arm: bool,
    /// Its own time to boot.
    pub boot: Option<Duration>,
}

/// An image.
#[derive(Debug, Clone)]
pub struct ImageConfig {
    /// `lambda-stack-24-04`.
    pub family: String,
    /// `Lambda Stack 24.04`.
    pub description: String,
    /// `24.4.4`.
    pub version: String,
    /// Whether it is for ARM.
    pub arm: bool,
}

/// How the account stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// Well.
    Open,
    /// It is inactive: everything is refused.
    Inactive,
    /// Its billing address is invalid: what costs money is refused.
    NoAddress,
}

/// What becomes of a launched instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// It becomes active.
    #[default]
    Active,
    /// It becomes unhealthy.
    Unhealthy,
    /// It boots for ever.
    Stuck,
    /// It becomes active and never shows an address.
    NoAddress,
    /// It becomes active, and is preempted at once.
    Preempted,
}

impl Outcome {
    /// Reads what the control takes: `unhealthy`.
    pub(super) fn read(text: &str) -> Option<Self> {
        Some(match text {
            "active" => Self::Active,
            "unhealthy" => Self::Unhealthy,
            "stuck" => Self::Stuck,
            "no-address" => Self::NoAddress,
            "preempted" => Self::Preempted,
            _ => return None,
        })
    }
}

/// A deliberate bug of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// What a POST is answered for is not there afterwards.
    LosesCreated,
    /// One POST makes two.
    DuplicatesOnCreate,
    /// What is deleted or terminated stays, though the answer says otherwise.
    DeleteDoesNothing,
    /// What is made never shows up in lists.
    LateForever,
    /// Names and tags of instances are lost.
    LosesTags,
}

/// Who uses the stand-in, each with a key of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum User {
    /// A user of the account.
    Alice,
    /// Another one of the same account: each sees and can end what the other has.
    Bob,
    /// One whose account is inactive.
    Carol,
}

impl User {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Alice, Self::Bob, Self::Carol];

    /// The user's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alice => "alice",
            Self::Bob => "bob",
            Self::Carol => "carol",
        }
    }
}
