//! Configuration of a stand-in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;

use super::super::clock::TimeSource;
use super::catalog::{self, ImageConfig, RegionConfig, TypeConfig};
use super::hosts::Hosts;

/// How a stand-in of Lambda behaves; the default has Lambda's own times and limits.
#[derive(Debug, Clone)]
pub struct Config {
    /// Port on the loopback; 0 for any free one.
    pub port: u16,
    /// Regions, in the order of the list.
    pub regions: Vec<RegionConfig>,
    /// Instance types of all regions.
    pub types: Vec<TypeConfig>,
    /// Images; each exists in every region.
    pub images: Vec<ImageConfig>,
    /// Free instances by type and region; 0 for a pair that is missing.
    pub capacity: BTreeMap<(String, String), u32>,
    /// Offset of the server's clock from this machine's.
    pub clock_offset: SignedDuration,
    /// Time source of the clock; `None` for Tokio's time.
    pub time: Option<Arc<dyn TimeSource>>,
    /// Minimum time between two requests.
    pub request_every: Duration,
    /// Minimum time between two launches.
    pub launch_every: Duration,
    /// Tolerance of both limits, for jitter on the way to the server.
    pub slack: Duration,
    /// Answer to a request that comes too soon.
    pub too_fast: TooFast,
    /// Time from a launch until the instance is active; a type can override it.
    pub boot: Duration,
    /// Time from a launch until the instance shows its address; may be longer than `boot`.
    pub address: Duration,
    /// Time from `active` until sshd answers; applies only to real hosts.
    pub silent: Duration,
    /// Duration of a restart.
    pub restart: Duration,
    /// Time that an instance spends in `terminating`.
    pub terminating: Duration,
    /// Time that a terminated instance stays in the list.
    pub linger: Duration,
    /// Delay before lists show what was created.
    pub late: Duration,
    /// Quota of instances of the account.
    pub instance_quota: usize,
    /// Quota of file systems of the account.
    pub file_system_quota: usize,
    /// Quota of firewall rulesets of the account.
    pub ruleset_quota: usize,
    /// Whether a second key of the same name is refused, as observed at Lambda ("Key name must be unique"). The
    /// document does not mention it, and two keys reveal a client that asks twice.
    pub unique_key_names: bool,
    /// Status for a launch that names something that does not exist: 400 or 404, the document has both.
    pub missing: u16,
    /// Whether answers have fields and values that are not in the document, as it warns.
    pub unknown_fields: bool,
    /// State of the account.
    pub account: Account,
    /// Whether the control sets the addresses of instances; no instance is active before that.
    pub wired: bool,
    /// Creates a host per instance, in this process.
    pub hosts: Option<Arc<dyn Hosts>>,
    /// Deliberate bugs, to prove that a test would notice them.
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
    /// A configuration without rate limits and delays: everything exists as soon as the answer is sent.
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

    /// Sets how many instances of a type are free in a region.
    #[must_use]
    pub fn with_capacity(mut self, kind: &str, region: &str, count: u32) -> Self {
        self.capacity.insert((kind.to_owned(), region.to_owned()), count);
        self
    }

    /// Leaves no free instances anywhere.
    #[must_use]
    pub fn without_capacity(mut self) -> Self {
        self.capacity.clear();
        self
    }
}

/// How a request that comes too soon is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooFast {
    /// 429, with or without a `Retry-After` header.
    Refused {
        /// Whether the answer has `Retry-After`.
        retry_after: bool,
    },
    /// Answered as usual, and counted.
    Counted,
}

/// State of the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// In good standing.
    Open,
    /// Inactive: every request is refused.
    Inactive,
    /// The billing address is invalid: requests that cost money are refused.
    NoAddress,
}

/// Outcome of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// The instance becomes active.
    #[default]
    Active,
    /// The instance becomes unhealthy.
    Unhealthy,
    /// The instance stays in `booting`.
    Stuck,
    /// The instance becomes active and never shows an address.
    NoAddress,
    /// The instance is preempted instead of becoming active.
    Preempted,
}

impl Outcome {
    /// Parses the name that the control uses, such as `unhealthy`.
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
    /// A POST succeeds, but nothing is created.
    LosesCreated,
    /// One POST creates two resources.
    DuplicatesOnCreate,
    /// Deletion or termination succeeds, but the resource stays.
    DeleteDoesNothing,
    /// New resources never show up in lists.
    LateForever,
    /// Names and tags of instances are lost.
    LosesTags,
}

/// A user of the stand-in, with an API key of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum User {
    /// A user of the account.
    Alice,
    /// Another user of the same account: each sees the other's resources and can end them.
    Bob,
    /// A user whose account is inactive.
    Carol,
}

impl User {
    /// All users.
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
