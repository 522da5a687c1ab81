//! The provider traits and their types.

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Acquired, Capability, Finding, Login, Manifest, Platform, Recorder, Reservations, Site, SiteFinding};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Bus;
use crate::host::SshTarget;
use crate::money::HourlyPrice;
use crate::name::{Key, Owner, Scope, Tag};
use crate::util::digest;

/// An invalid value in a provider's settings; the spec reader adds the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The path below the settings' root, such as `ssh_port`, empty for the settings as a whole; for an entry of
    /// `hosts:` it begins with the entry's index, such as `hosts[0].node`.
    pub path: String,
    /// What is wrong, a lowercase fragment.
    pub message: String,
    /// The valid names there, if a name is unknown.
    pub known: Vec<String>,
}

/// What a provider is opened with. The command line creates it; the core does not read the environment.
#[derive(Debug, Clone)]
pub struct Context {
    /// The folder for data of hosts on this machine.
    pub data_dir: PathBuf,
    /// The folder for data that can be recreated.
    pub cache_dir: PathBuf,
    /// A folder with a short path, for sockets.
    pub runtime_dir: PathBuf,
    /// The folder with one folder per cluster, by name; the SSH keys of its hosts are there.
    pub clusters_dir: PathBuf,
    /// The caller's home, XDG folders and environment variables.
    pub user_environment: UserEnvironment,
    /// Where progress, notes and warnings are sent.
    pub events: Bus,
}

/// The caller's home, XDG folders and environment variables, as read by the command line.
#[derive(Debug, Clone, Default)]
pub struct UserEnvironment {
    /// The environment variables that are valid UTF-8.
    pub variables: BTreeMap<String, String>,
    /// The user's home directory.
    pub home: PathBuf,
    /// The configuration folder, `~/.config` by default.
    pub config_home: PathBuf,
    /// gpucl's folder within `config_home`.
    pub config_dir: PathBuf,
    /// The current working directory.
    pub here: PathBuf,
}

impl UserEnvironment {
    /// The value of a variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The address of the D-Bus session bus, for the desktop keyring; `None` if unset, or with `GPUCL_KEYRING=off`.
    pub fn keyring_bus(&self) -> Option<&str> {
        self.variable("DBUS_SESSION_BUS_ADDRESS").filter(|_| self.variable("GPUCL_KEYRING") != Some("off"))
    }
}

/// Creates a provider from its settings. One `static FACTORY` per provider folder.
pub trait Factory: Sync {
    /// The provider's manifest: name, summary, guide.
    fn manifest(&self) -> Result<Manifest>;
    /// The provider's capabilities.
    fn capability(&self) -> Capability;
    /// The JSON Schema of its settings (the keys under `provider:` other than `name`).
    fn settings_schema(&self) -> schemars::Schema;
    /// The JSON Schema of one entry of `hosts:`.
    fn host_schema(&self) -> schemars::Schema;
    /// The default entry of `hosts:` for the conformance suite.
    fn example_host(&self) -> serde_json::Value {
        serde_json::Value::Object(serde_json::Map::new())
    }
    /// Validates settings and host entries strictly; no side effects.
    fn check(&self, settings: &serde_json::Value, hosts: &[serde_json::Value]) -> Vec<FieldError>;
    /// The folder on every host where a file system of these settings is mounted, by its name; `None` if the settings
    /// attach none of that name.
    fn file_system(&self, settings: &serde_json::Value, name: &str) -> Option<String> {
        let _ = (settings, name);
        None
    }
    /// What a file of logins that the settings name leads to, as [`Factory::open`] would read it: a spec's reader is
    /// shown it. Runs nothing, and contacts nobody.
    ///
    /// # Errors
    /// If it cannot be read.
    fn login_file(&self, file: &std::path::Path) -> Result<LoginFile> {
        Err(Error::new(ErrorKind::Internal, format!("read {}", file.display())).because("no login is read from files"))
    }
    /// How users log in; `None` for providers without accounts.
    fn login(&self) -> Option<&dyn Login> {
        None
    }
    /// Opens the provider. The settings have passed `check`.
    fn open(&self, settings: &serde_json::Value, context: &Context) -> Result<Box<dyn Provider>>;
}

/// What a file of logins leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginFile {
    /// Servers, programs with their arguments, and files that are sent, in words: `it runs az`.
    pub says: Vec<String>,
    /// Programs and scripts by their paths: their content is part of what is accepted.
    pub programs: Vec<std::path::PathBuf>,
}

/// A host requested by the spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRequest {
    /// The host's key: `host0`.
    pub key: Key,
    /// Its entry under `hosts:`, in the provider's own format.
    pub settings: serde_json::Value,
    /// What [`Provider::resolve`] found for this host.
    #[serde(default)]
    pub found: Finding,
}

impl HostRequest {
    /// Creates a request as the spec has it, without a finding.
    pub fn new(key: Key, settings: serde_json::Value) -> Self {
        Self { key, settings, found: Finding::default() }
    }
}

/// When hosts become available, if not now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The time at which they become available.
    pub at: jiff::Timestamp,
    /// What begins at that time: `the lease demo on liqid01`.
    pub what: String,
}

/// What the spec leaves open, resolved.
#[derive(Debug, Clone, Default)]
pub struct Resolved {
    /// The hosts, each with its finding.
    pub hosts: Vec<HostRequest>,
    /// The hardware of each host, as far as it is known.
    pub offers: Vec<Offer>,
    /// When they become available, if not now.
    pub start: Option<Start>,
    /// When they end, if known.
    pub end: Option<jiff::Timestamp>,
    /// Notes to show before anything is requested: the price, an end that was moved.
    pub notes: Vec<String>,
}

/// The kind of a resource: `host`, `lease`, `server`, `floating_ip`, `key_pair`, `instance`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceKind(pub String);

/// One resource, acquired by one mutating call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRequest {
    /// Its key within the cluster; the call's idempotency key derives from it.
    pub key: Key,
    /// The kind of resource.
    pub kind: ResourceKind,
    /// The request in the provider's own format; its digest shows whether it has changed.
    pub settings: serde_json::Value,
    /// The provider's finding, with the price; not part of the digest.
    #[serde(default, skip_serializing_if = "Finding::is_empty")]
    pub found: Finding,
    /// The id of an existing resource to use that was not made for this cluster: it is neither acquired nor released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<String>,
    /// The keys of the resources that must be acquired first.
    #[serde(default)]
    pub needs: Vec<Key>,
    /// It is a host once acquired.
    #[serde(default)]
    pub is_host: bool,
}

impl ResourceRequest {
    /// Creates a request without a finding, for a resource that needs no others and is no host.
    pub fn new(key: Key, kind: &str, settings: serde_json::Value) -> Self {
        Self {
            key,
            kind: ResourceKind(kind.to_owned()),
            settings,
            found: Finding::default(),
            adopted: None,
            needs: Vec::new(),
            is_host: false,
        }
    }

    /// The label shown with the price; the kind if the provider gives no label.
    pub fn label(&self) -> &str {
        self.found.label.as_deref().unwrap_or(&self.kind.0)
    }

    /// The digest of the request, without finding and price: a different one means that the spec has changed.
    pub fn digest(&self) -> String {
        digest::of_json(&(&self.key, &self.kind, &self.settings, &self.needs, self.is_host))
    }
}

/// A resource with our tag, as reported by the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedResource {
    /// The key in its tag.
    pub key: Key,
    /// The kind of resource.
    pub kind: ResourceKind,
    /// The provider's id for it.
    pub id: String,
    /// Whether it can be used now.
    pub usable: bool,
    /// It is not usable yet but will be without further calls: it is being created, or its time has not come.
    #[serde(default)]
    pub coming: bool,
    /// It was not made for this cluster and is not released with it.
    #[serde(default)]
    pub adopted: bool,
    /// When the provider ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<jiff::Timestamp>,
    /// Why it is not usable, or other details.
    #[serde(default)]
    pub detail: String,
    /// The digest of the request that it has now, for a resource that carries it and can be changed in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl ObservedResource {
    /// Creates a usable resource of this cluster, without an end or details.
    pub fn existing(key: Key, kind: &str, id: impl Into<String>) -> Self {
        Self {
            key,
            kind: ResourceKind(kind.to_owned()),
            id: id.into(),
            usable: true,
            coming: false,
            adopted: false,
            until: None,
            detail: String::new(),
            digest: None,
        }
    }
}

/// GPUs of one kind in an offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuOffer {
    /// The product's name.
    pub model: String,
    /// How many; `None` if unknown, then at least one.
    pub count: Option<u32>,
}

impl GpuOffer {
    /// `2 x NVIDIA A100`; `? x NVIDIA A100` if the count is unknown.
    pub fn describe(&self) -> String {
        match self.count {
            Some(count) => format!("{count} x {}", self.model),
            None => format!("? x {}", self.model),
        }
    }
}

/// A host type or host that a provider can supply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The name to request it by: of a host or a type.
    pub name: String,
    /// The site or region.
    pub place: String,
    /// Logical processors.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// The GPUs of one host.
    pub gpus: Vec<GpuOffer>,
    /// The price of an hour; `None` if free or not reported by the provider.
    pub price_per_hour: Option<HourlyPrice>,
    /// When it is available: `now`, or a time.
    pub free: String,
}

/// How commands are run on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostPlace {
    /// On this machine, as this user; all of the host's files are in this folder.
    Local {
        /// The host's folder.
        folder: PathBuf,
        /// The name of the provider's own file in the folder, to be kept when the folder is emptied; empty for none.
        #[serde(default)]
        claim: String,
    },
    /// Over SSH.
    Ssh {
        /// The SSH target.
        target: SshTarget,
        /// What is particular about the host.
        #[serde(default, skip_serializing_if = "Site::is_plain")]
        site: Box<Site>,
    },
}

/// A source of hosts or clusters.
///
/// Every method may be called again after a crash, possibly by another process; none may rely on state kept in
/// memory.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The provider's capabilities.
    fn capability(&self) -> Capability;

    /// What is available, when, and at what price. Read-only.
    async fn offers(&self) -> Result<Vec<Offer>>;

    /// Inspects the site: what clusters there depend on. Read-only.
    async fn inspect_site(&self) -> Result<Vec<SiteFinding>> {
        Ok(Vec::new())
    }

    /// The existing resources of this scope, duplicates included. Read-only.
    ///
    /// # Behavior
    /// - Returns only resources whose tag has exactly this owner and cluster.
    /// - Returns every such resource, including broken, half-created and half-released ones.
    /// - The result may lag by at most [`Capability::consistency_delay`].
    async fn observe(&self, scope: &Scope) -> Result<Vec<ObservedResource>> {
        let owned = self.owned(&scope.owner).await?;
        Ok(owned.into_iter().filter(|(tag, _)| scope.holds(tag)).map(|(_, found)| found).collect())
    }

    /// The existing resources of this owner in all clusters, each with its tag. Read-only.
    async fn owned(&self, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>>;

    /// The logged-in user's resources with a tag of any owner, for users who have lost their owner. Read-only.
    ///
    /// # Behavior
    /// - Omits resources known to be another user's.
    async fn tagged(&self) -> Result<Vec<(Tag, ObservedResource)>> {
        Ok(Vec::new())
    }

    /// Resolves what the spec leaves open, and refuses what cannot be had before anything is requested. Read-only.
    ///
    /// # Behavior
    /// - Returns the same hosts with the same settings, and its results in `found`.
    /// - Returns the same result again for hosts that already exist.
    async fn resolve(&self, _scope: &Scope, hosts: Vec<HostRequest>) -> Result<Resolved> {
        Ok(Resolved { hosts, ..Resolved::default() })
    }

    /// The current state of these adopted resources; those that are gone are omitted. Read-only.
    async fn observe_adopted(&self, _requests: &[ResourceRequest]) -> Result<Vec<ObservedResource>> {
        Ok(Vec::new())
    }

    /// Waits until an acquired or adopted resource is usable; reports progress, and fails at a timeout.
    ///
    /// # Behavior
    /// - May be called again, and for a resource that is usable already.
    /// - An error with status `Temporary` means that releasing and acquiring it once more may succeed.
    async fn wait_usable(&self, _tag: &Tag, _request: &ResourceRequest, _id: &str) -> Result<()> {
        Ok(())
    }

    /// Reservations by time; `None` if the provider has none.
    fn reservations(&self) -> Option<&dyn Reservations> {
        None
    }

    /// What it does as a platform; `None` for a provider of hosts.
    fn platform(&self) -> Option<&dyn Platform> {
        None
    }

    /// The resources that a host needs, in an order in which they can be acquired. Pure.
    ///
    /// # Behavior
    /// - Keys are unique within a host; `needs` refers to earlier ones only.
    /// - Exactly one of them is the host; none for a platform, whose cluster is not a host.
    /// - A resource shared by two hosts has the same key and the same request in both.
    fn expand(&self, scope: &Scope, request: &HostRequest) -> Result<Vec<ResourceRequest>>;

    /// Acquires one resource by one mutating call.
    ///
    /// # Behavior
    /// - Is idempotent by tag: with the same tag it returns the existing resource and creates no second one.
    /// - Passes the id to the recorder before it goes on and before it returns, also for a resource that existed;
    ///   fails if the recorder fails.
    /// - Returns once the call is accepted; `observe` shows when the resource is usable.
    /// - Finds the resources that the request `needs` by their tags, since `needs` has only keys.
    /// - On failure, the error says what is left behind, and `observe` shows it.
    /// - May be dropped at any await point; `observe` then shows what it had begun.
    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired>;

    /// Releases one resource, as returned by `observe`.
    ///
    /// # Behavior
    /// - Succeeds if the resource is already gone.
    /// - Affects only this id, not a newer resource with the same key.
    /// - May be dropped at any await point; `observe` still shows what is unfinished, and the next call finishes it.
    async fn release(&self, scope: &Scope, resource: &ObservedResource) -> Result<()>;

    /// A recorded place with what the settings say of the way to it: user, port, key. They may have been corrected since.
    /// Pure.
    fn reached(&self, place: HostPlace) -> HostPlace {
        place
    }

    /// How to run commands on an acquired, usable host; fails if it does not exist.
    async fn place(&self, tag: &Tag, id: &str) -> Result<HostPlace>;

    /// What is particular about every host that its settings ask for; what depends on the host itself is empty. Pure.
    fn site(&self) -> Site {
        Site::default()
    }

    /// The place of a host that exists before it is acquired, so that it can be inspected for the plan. Pure.
    ///
    /// # Behavior
    /// - If `Some`, it equals the result of [`Provider::place`] once the host is acquired.
    fn standing(&self, _scope: &Scope, _request: &HostRequest) -> Option<HostPlace> {
        None
    }

    /// A request that this provider must refuse as `Permanent`, leaving nothing behind; for the conformance suite.
    fn refused_request(&self, key: &Key) -> ResourceRequest;
}
