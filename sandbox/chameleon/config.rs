//! What a stand-in is to be like.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::SignedDuration;

/// How a stand-in of a site behaves; the default is the testbed with a fast clockwork.
#[derive(Debug, Clone)]
pub struct Config {
    /// The port on the loopback; 0 for any.
    pub port: u16,
    /// The region's name.
    pub region: String,
    /// The hosts, also those that cannot be reserved.
    pub hosts: Vec<HostConfig>,
    /// The images, in the order in which they were made; two may have one name.
    pub images: Vec<ImageConfig>,
    /// The names of the shared networks.
    pub networks: Vec<String>,
    /// Services that the catalog does not name.
    pub without: BTreeSet<Service>,
    /// The server's clock against ours.
    pub clock_offset: SignedDuration,
    /// From a server's creation until it is ACTIVE.
    pub boot: Duration,
    /// From a server's creation until it is told that no host takes it.
    pub schedule: Duration,
    /// From the request to delete a server until it is gone.
    pub deletion: Duration,
    /// How often due events of leases are looked for: 10 seconds at the real service.
    pub lease_tick: Duration,
    /// How long a lease is STARTING or TERMINATING.
    pub transition: Duration,
    /// How long a changed lease is UPDATING.
    pub updating: Duration,
    /// What is made shows up in lists only after this long, and what is deleted stays there as long.
    pub late: Duration,
    /// How long a token lives.
    pub token_life: Duration,
    /// A second lease of one name is refused, as at Chameleon.
    pub unique_lease_names: bool,
    /// The longest lease.
    pub longest_lease: Duration,
    /// How many floating IPs there are.
    pub floating_ips: usize,
    /// How many floating IPs a project may have.
    pub floating_ip_quota: usize,
    /// How many servers a project may have.
    pub instance_quota: usize,
    /// How many key pairs a user may have.
    pub key_pair_quota: usize,
    /// Where Chameleon's services differ from the testbed's.
    pub quirks: Quirks,
    /// Deliberate bugs, so that a test can show that it would notice.
    pub bugs: BTreeSet<Bug>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: 0,
            region: "CHI@UC".to_owned(),
            hosts: vec![
                HostConfig { id: "2".to_owned(), ..HostConfig::new("liqid01", "compute_liqid", "A100", 1) },
                HostConfig { id: "3".to_owned(), ..HostConfig::new("liqid02", "compute_liqid", "A100", 1) },
                HostConfig { id: "1".to_owned(), ..HostConfig::new("c03-04", "gpu_mi100", "MI100", 2) },
                HostConfig { id: "5".to_owned(), ..HostConfig::new("c03-05", "gpu_mi100", "MI100", 2) },
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
    /// The host of this name, to be changed before the start.
    pub fn host(&mut self, name: &str) -> Option<&mut HostConfig> {
        self.hosts.iter_mut().find(|host| host.name == name)
    }
}

/// A host of the site.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// What people call it: `liqid01`.
    pub name: String,
    /// Its type: `compute_liqid`.
    pub kind: String,
    /// Blazar's id of it, a number as a text; made when empty.
    pub id: String,
    /// Nova's name of it: a UUID, as Ironic gives them; made when empty.
    pub hypervisor: String,
    /// The GPUs' product name.
    pub gpu_model: String,
    /// How many GPUs.
    pub gpu_count: u32,
    /// Whether it can be reserved now.
    pub reservable: bool,
    /// Whether it is Blazar's at all; others take servers without a reservation.
    pub owned_by_blazar: bool,
    /// Further properties, or other values; an empty value takes a property away.
    pub properties: BTreeMap<String, String>,
}

impl HostConfig {
    /// A host that can be reserved.
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
    /// Its name; not unique.
    pub name: String,
    /// `active`, `queued`, `deactivated`.
    pub status: String,
    /// `public`, `shared`, `private`.
    pub visibility: String,
}

impl ImageConfig {
    /// An active public image.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), status: "active".to_owned(), visibility: "public".to_owned() }
    }
}

/// One of the services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Keystone.
    Identity,
    /// Blazar.
    Reservation,
    /// Nova.
    Compute,
    /// Glance.
    Image,
    /// Neutron.
    Network,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Identity, Self::Reservation, Self::Compute, Self::Image, Self::Network];

    /// Its type in the catalog, and its prefix here.
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

/// Where Chameleon's services differ from the testbed's, as its sources and documents say.
#[derive(Debug, Clone, Default)]
pub struct Quirks {
    /// DELETE of a lease answers 200 and `{}`.
    pub delete_answers_200: bool,
    /// A lease can be extended only this long before its end.
    pub update_window: Option<Duration>,
    /// The service units that the project has left.
    pub service_units: Option<f64>,
    /// What enforcement answers with: 400 in the sources, 403 in the tests of its operators.
    pub enforcement_400: bool,
    /// Allocations tell who holds a host.
    pub extras: bool,
    /// Reservations have `on_start`, and a lease's hosts can be asked for.
    pub fork: bool,
}

impl Quirks {
    /// All of them, with a project that has many service units.
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
    /// What a POST is answered for is not there afterwards.
    LosesCreated,
    /// One POST makes two.
    DuplicatesOnCreate,
    /// Lists show what is another project's or another user's.
    ListsForeign,
    /// A DELETE is answered and nothing is deleted.
    DeleteDoesNothing,
    /// What is made never shows up in lists.
    LateForever,
    /// Names, descriptions and metadata lose what carries our tag.
    LosesTags,
}

/// Who uses the stand-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum User {
    /// A user of project CHI-TEST.
    Alice,
    /// The same user, with a credential that cannot make leases.
    AliceRestricted,
    /// Another user of the same project.
    Bob,
    /// A user of another project.
    Carol,
}

impl User {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Alice, Self::AliceRestricted, Self::Bob, Self::Carol];

    /// The user's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alice | Self::AliceRestricted => "alice",
            Self::Bob => "bob",
            Self::Carol => "carol",
        }
    }

    /// The project's name.
    pub fn project(self) -> &'static str {
        if self == Self::Carol { "CHI-OTHER" } else { "CHI-TEST" }
    }
}
