//! Configuration of a stand-in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::SignedDuration;

/// How a stand-in for a site behaves; the default is the testbed's site with short delays.
#[derive(Debug, Clone)]
pub struct Config {
    /// Port on the loopback; 0 for any free one.
    pub port: u16,
    /// Name of the region.
    pub region: String,
    /// Hosts, including those that cannot be reserved.
    pub hosts: Vec<HostConfig>,
    /// Images by creation time, the oldest first; names may repeat.
    pub images: Vec<ImageConfig>,
    /// Names of the shared networks.
    pub networks: Vec<String>,
    /// Services that are missing in the catalog.
    pub without: BTreeSet<Service>,
    /// Offset of the server's clock from this machine's.
    pub clock_offset: SignedDuration,
    /// Time from a server's creation until it is ACTIVE.
    pub boot: Duration,
    /// Time from a server's creation until it fails because no host takes it.
    pub schedule: Duration,
    /// Time from the request to delete a server until it is gone.
    pub deletion: Duration,
    /// Interval of the checks for due lease events: 10 seconds at the real service.
    pub lease_tick: Duration,
    /// Time that a lease spends in STARTING or TERMINATING.
    pub transition: Duration,
    /// Time that a changed lease spends in UPDATING.
    pub updating: Duration,
    /// Delay before lists show what was created, and before they drop what was deleted.
    pub late: Duration,
    /// Lifetime of a token.
    pub token_life: Duration,
    /// More projects that every user is in, each with the only role there. Services know their usual one alone.
    pub more_projects: Vec<(String, String)>,
    /// The list of sites that Chameleon publishes: names, and addresses of their pages.
    pub sites: Vec<(String, String)>,
    /// The identity provider, which several sites share if theirs are equal.
    pub issuer: IssuerConfig,
    /// Whether a second lease with the same name is refused, as at Chameleon.
    pub unique_lease_names: bool,
    /// Maximum duration of a lease.
    pub longest_lease: Duration,
    /// Number of floating IPs in the pool.
    pub floating_ips: usize,
    /// Quota of floating IPs per project.
    pub floating_ip_quota: usize,
    /// Quota of servers per project.
    pub instance_quota: usize,
    /// Quota of key pairs per user.
    pub key_pair_quota: usize,
    /// Differences of Chameleon's services from the testbed's.
    pub quirks: Quirks,
    /// Deliberate bugs, to prove that a test would notice them.
    pub bugs: BTreeSet<Bug>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: 0,
            region: "CHI@UC".to_owned(),
            hosts: vec![
                HostConfig { id: "2".to_owned(), ..HostConfig::new("liqid01", "compute_liqid", "A100", 2) },
                HostConfig { id: "3".to_owned(), ..HostConfig::new("liqid02", "compute_liqid", "A100", 1) },
                HostConfig { id: "1".to_owned(), ..HostConfig::new("c03-04", "gpu_mi100", "MI100", 2) },
                HostConfig { id: "5".to_owned(), ..HostConfig::new("c03-05", "gpu_mi100", "MI100", 2) },
                HostConfig {
                    id: "6".to_owned(),
                    reservable: false,
                    ..HostConfig::new("broken01", "compute_liqid", "A100", 2)
                },
                HostConfig { id: "4".to_owned(), owned_by_blazar: false, ..HostConfig::new("plain01", "-", "", 0) },
            ],
            images: ["CC-Ubuntu22.04", "CC-Ubuntu24.04", "CC-Ubuntu24.04-CUDA", "CC-Ubuntu24.04-ROCm"]
                .map(ImageConfig::new)
                .to_vec(),
            networks: vec!["sharednet1".to_owned()],
            without: BTreeSet::new(),
            clock_offset: SignedDuration::ZERO,
            boot: Duration::from_millis(20),
            schedule: Duration::from_millis(5),
            deletion: Duration::from_millis(5),
            lease_tick: Duration::from_millis(20),
            transition: Duration::from_millis(5),
            updating: Duration::ZERO,
            late: Duration::ZERO,
            token_life: Duration::from_secs(4 * 3600),
            more_projects: Vec::new(),
            sites: vec![("CHI@UC".to_owned(), "https://chi.uc.chameleoncloud.org".to_owned())],
            issuer: IssuerConfig::default(),
            unique_lease_names: false,
            longest_lease: Duration::from_secs(604_800),
            floating_ips: 190,
            floating_ip_quota: 50,
            instance_quota: 10,
            key_pair_quota: 100,
            quirks: Quirks::default(),
            bugs: BTreeSet::new(),
        }
    }
}

impl Config {
    /// The host with this name, to change it before the start.
    pub fn host(&mut self, name: &str) -> Option<&mut HostConfig> {
        self.hosts.iter_mut().find(|host| host.name == name)
    }
}

/// The identity provider of a stand-in.
#[derive(Debug, Clone)]
pub struct IssuerConfig {
    /// The address that it has for its users, where that is not its own: `https://auth.chameleoncloud.org`.
    pub address: Option<String>,
    /// What access tokens are signed with; a site takes those of others with the same.
    pub key: String,
    /// Lifetime of an access token.
    pub access_life: Duration,
    /// Lifetime of a refresh token, from its last use.
    pub refresh_life: Duration,
    /// Lifetime of a device code.
    pub code_life: Duration,
    /// The interval between two questions that it asks for, in seconds.
    pub interval: u64,
    /// Whether each use of a refresh token replaces it, and a second use ends the login.
    pub rotates: bool,
}

impl Default for IssuerConfig {
    fn default() -> Self {
        Self {
            address: None,
            key: "chameleon".to_owned(),
            access_life: Duration::from_secs(300),
            refresh_life: Duration::from_secs(1800),
            code_life: Duration::from_secs(600),
            interval: 1,
            rotates: true,
        }
    }
}

/// A physical host of the site.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Name for users: `liqid01`.
    pub name: String,
    /// Node type: `compute_liqid`.
    pub kind: String,
    /// Blazar's id, a number as a string; generated if empty.
    pub id: String,
    /// Nova's name of the host: a UUID, as from Ironic; generated if empty.
    pub hypervisor: String,
    /// Product name of the GPUs.
    pub gpu_model: String,
    /// Number of GPUs.
    pub gpu_count: u32,
    /// Whether the host can be reserved now.
    pub reservable: bool,
    /// Whether Blazar manages the host; other hosts take servers without a reservation.
    pub owned_by_blazar: bool,
    /// Additional or overridden properties; an empty value removes a property.
    pub properties: BTreeMap<String, String>,
}

impl HostConfig {
    /// A reservable host with generated ids.
    pub fn new(name: &str, kind: &str, gpu_model: &str, gpu_count: u32) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            id: String::new(),
            hypervisor: String::new(),
            gpu_model: gpu_model.to_owned(),
            gpu_count,
            reservable: true,
            owned_by_blazar: true,
            properties: BTreeMap::new(),
        }
    }
}

/// An image of the site.
#[derive(Debug, Clone)]
pub struct ImageConfig {
    /// Name; not unique.
    pub name: String,
    /// Status: `active`, `queued`, `deactivated`.
    pub status: String,
    /// Visibility: `public`, `shared`, `private`.
    pub visibility: String,
}

impl ImageConfig {
    /// An active public image.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), status: "active".to_owned(), visibility: "public".to_owned() }
    }
}

/// An OpenStack service of the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Keystone: tokens, catalog.
    Identity,
    /// Blazar: leases.
    Reservation,
    /// Nova: servers, key pairs.
    Compute,
    /// Glance: images.
    Image,
    /// Neutron: networks, floating IPs.
    Network,
}

impl Service {
    /// All services.
    pub const ALL: [Self; 5] = [Self::Identity, Self::Reservation, Self::Compute, Self::Image, Self::Network];

    /// Type in the catalog, and path prefix here.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Reservation => "reservation",
            Self::Compute => "compute",
            Self::Image => "image",
            Self::Network => "network",
        }
    }
}

/// Differences of Chameleon's services from the testbed's, according to its sources and documents.
#[derive(Debug, Clone, Default)]
pub struct Quirks {
    /// Whether DELETE of a lease answers 200 with `{}`.
    pub delete_answers_200: bool,
    /// Time before its end in which a lease can be extended; `None` for always.
    pub update_window: Option<Duration>,
    /// Service units that the project has left; `None` for unlimited.
    pub service_units: Option<f64>,
    /// Whether enforcement answers 400, as in the sources, instead of 403, as in the operators' tests.
    pub enforcement_400: bool,
    /// Whether allocations show who holds a host.
    pub extras: bool,
    /// Whether reservations have `on_start`, and a lease's hosts can be listed.
    pub fork: bool,
}

impl Quirks {
    /// All quirks, for a project with 20,000 service units.
    pub fn chameleon() -> Self {
        Self {
            delete_answers_200: true,
            update_window: Some(Duration::from_secs(172_800)),
            service_units: Some(20_000.0),
            enforcement_400: true,
            extras: true,
            fork: true,
        }
    }
}

/// A deliberate bug of the services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// A POST succeeds, but nothing is created.
    LosesCreated,
    /// One POST creates two resources.
    DuplicatesOnCreate,
    /// Lists include resources of other projects or users.
    ListsForeign,
    /// A DELETE succeeds, but nothing is deleted.
    DeleteDoesNothing,
    /// New resources never show up in lists.
    LateForever,
    /// Names, descriptions and metadata lose gpucl's tag.
    LosesTags,
}

/// A user of the stand-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum User {
    /// A user of project CHI-TEST.
    Alice,
    /// The same user, with a credential that cannot create leases.
    AliceRestricted,
    /// Another user of the same project.
    Bob,
    /// A user of another project.
    Carol,
}

impl User {
    /// All users.
    pub const ALL: [Self; 4] = [Self::Alice, Self::AliceRestricted, Self::Bob, Self::Carol];

    /// Name of the user.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alice | Self::AliceRestricted => "alice",
            Self::Bob => "bob",
            Self::Carol => "carol",
        }
    }

    /// Name of the user's project.
    pub fn project(self) -> &'static str {
        if self == Self::Carol { "CHI-OTHER" } else { "CHI-TEST" }
    }
}
