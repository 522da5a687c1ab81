//! The traits and what passes through them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Acquired, Capability, Finding, Login, Manifest, Recorder, Reservations};
use crate::error::Result;
use crate::event::Bus;
use crate::host::SshTarget;
use crate::money::HourlyPrice;
use crate::name::{Key, Owner, Scope, Tag};
use crate::util::digest;

/// A wrong value in a provider's own settings; the spec's reader gives it its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The path from the settings' root, such as `ssh_port`, empty for the settings as a whole; for an entry of `hosts:`
    /// it begins with its place there, such as `hosts[0].node`.
    pub path: String,
    /// What is wrong, a lowercase fragment.
    pub message: String,
    /// The names that are known there, when a name is unknown.
    pub known: Vec<String>,
}

/// What a provider is opened with. The command line makes it; the core reads no environment of its own.
#[derive(Debug, Clone)]
pub struct Context {
    /// Where a provider may keep what belongs to hosts of this machine.
    pub data_dir: PathBuf,
    /// Where a provider may keep what can be made again.
    pub cache_dir: PathBuf,
    /// A short folder for sockets.
    pub runtime_dir: PathBuf,
    /// Where each cluster has its own folder, by its name: the keys of its hosts lie there.
    pub clusters_dir: PathBuf,
    /// What the user has set up around gpucl.
    pub user_environment: UserEnvironment,
    /// Where to say what goes on.
    pub events: Bus,
}

/// What the user has set up around gpucl, as the command line found it.
#[derive(Debug, Clone, Default)]
pub struct UserEnvironment {
    /// The environment's variables that are text.
    pub variables: BTreeMap<String, String>,
    /// The user's home.
    pub home: PathBuf,
    /// The folder of configuration files, `~/.config` by default.
    pub config_home: PathBuf,
    /// gpucl's own folder in it.
    pub config_dir: PathBuf,
    /// The working folder.
    pub here: PathBuf,
}

impl UserEnvironment {
    /// A variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The address of the session bus, where the desktop's keyring answers; `None` without one, and with `GPUCL_KEYRING=off`.
    pub fn keyring_bus(&self) -> Option<&str> {
        self.variable("DBUS_SESSION_BUS_ADDRESS").filter(|_| self.variable("GPUCL_KEYRING") != Some("off"))
    }
}

/// Makes a provider of its settings. One `static FACTORY` per provider folder.
pub trait Factory: Sync {
    /// What it says of itself.
    fn manifest(&self) -> Result<Manifest>;
    /// What it can do.
    fn capability(&self) -> Capability;
    /// The JSON Schema of its settings (what stands under `provider:` beside `name`).
    fn settings_schema(&self) -> schemars::Schema;
    /// The JSON Schema of one entry of `hosts:`.
    fn host_schema(&self) -> schemars::Schema;
    /// An entry of `hosts:` for the conformance suite, where nobody gives one.
    fn example_host(&self) -> serde_json::Value {
        serde_json::Value::Object(serde_json::Map::new())
    }
    /// Checks settings and host entries strictly; touches nothing.
    fn check(&self, settings: &serde_json::Value, hosts: &[serde_json::Value]) -> Vec<FieldError>;
    /// How a person logs in to it, where it has accounts.
    fn login(&self) -> Option<&dyn Login> {
        None
    }
    /// Opens it. Settings have passed `check`.
    fn open(&self, settings: &serde_json::Value, context: &Context) -> Result<Box<dyn Provider>>;
}

/// A host that the spec asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRequest {
    /// Its key: `host0`.
    pub key: Key,
    /// Its entry under `hosts:`, in the provider's own form.
    pub settings: serde_json::Value,
    /// What [`Provider::resolve`] found for it.
    #[serde(default)]
    pub found: Finding,
}

impl HostRequest {
    /// A host as the spec asks for it.
    pub fn new(key: Key, settings: serde_json::Value) -> Self {
        Self { key, settings, found: Finding::default() }
    }
}

/// When hosts can be had, where that is not now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The time.
    pub at: jiff::Timestamp,
    /// What begins then: `the lease demo on liqid01`.
    pub what: String,
}

/// What a spec leaves open, pinned down.
#[derive(Debug, Clone, Default)]
pub struct Resolved {
    /// The hosts, with what was found for each.
    pub hosts: Vec<HostRequest>,
    /// What each of them will be, as far as it is known.
    pub offers: Vec<Offer>,
    /// When they can be had, if not now.
    pub start: Option<Start>,
    /// When they are taken away again, where that is known.
    pub end: Option<jiff::Timestamp>,
    /// What a person should know before anything is asked for: the price, an end that was moved.
    pub notes: Vec<String>,
}

/// The kind of a resource: `host`, `lease`, `server`, `floating_ip`, `key_pair`, `instance`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceKind(pub String);

/// One thing to be acquired by one mutating call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRequest {
    /// Its key within the cluster; the request key of the call is made of it, so that a repeated call is known.
    pub key: Key,
    /// What it is.
    pub kind: ResourceKind,
    /// The provider's own form of what is asked for; its digest tells whether it has changed.
    pub settings: serde_json::Value,
    /// What was found for it, with what it costs; not part of its digest.
    #[serde(default, skip_serializing_if = "Finding::is_empty")]
    pub found: Finding,
    /// The id of what is used and was not made for this cluster: it is neither acquired nor released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<String>,
    /// The resources it needs first.
    #[serde(default)]
    pub needs: Vec<Key>,
    /// It can be handed over as a host once it is acquired.
    #[serde(default)]
    pub is_host: bool,
}

impl ResourceRequest {
    /// What a person calls it when its price is told; its kind where its provider has no other word for it.
    pub fn label(&self) -> &str {
        self.found.label.as_deref().unwrap_or(&self.kind.0)
    }

    /// The digest of what is asked for: another one means that the spec has changed. What was found and what it costs is not part of it.
    pub fn digest(&self) -> String {
        digest::of_json(&(&self.key, &self.kind, &self.settings, &self.needs, self.is_host))
    }
}

/// A resource that carries our tag, as the provider tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedResource {
    /// The key in its tag.
    pub key: Key,
    /// What it is.
    pub kind: ResourceKind,
    /// The provider's id of it.
    pub id: String,
    /// Whether it can be used now.
    pub usable: bool,
    /// It cannot be used yet, and will be by itself: it is being made, or its time has not come.
    #[serde(default)]
    pub coming: bool,
    /// It was not made for this cluster, and is not released with it.
    #[serde(default)]
    pub adopted: bool,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<jiff::Timestamp>,
    /// Why it cannot, or what else there is to know.
    #[serde(default)]
    pub detail: String,
}

/// GPUs of one kind in an offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuOffer {
    /// The product's name.
    pub model: String,
    /// How many; `None` where nobody tells: one at least.
    pub count: Option<u32>,
}

impl GpuOffer {
    /// `2 x NVIDIA A100`; where nobody tells how many, `? x NVIDIA A100`.
    pub fn describe(&self) -> String {
        match self.count {
            Some(count) => format!("{count} x {}", self.model),
            None => format!("? x {}", self.model),
        }
    }
}

/// Something a provider could hand over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// What to ask for it by: a host's or a type's name.
    pub name: String,
    /// Where it is.
    pub place: String,
    /// Logical processors.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Its GPUs.
    pub gpus: Vec<GpuOffer>,
    /// What it costs an hour; `None` for nothing, and where the provider does not tell.
    pub price_per_hour: Option<HourlyPrice>,
    /// When it is free: `now`, or a time.
    pub free: String,
}

/// How the commands of a host are run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostPlace {
    /// On this machine, as this user; everything of the host stands in this folder.
    Local {
        /// The host's folder.
        folder: PathBuf,
        /// The name of the file in it that is the provider's own: whoever empties the folder leaves it. None when empty.
        #[serde(default)]
        claim: String,
    },
    /// By SSH.
    Ssh {
        /// How it is reached.
        target: SshTarget,
    },
}

/// A place that hosts or clusters come from.
///
/// Every method may be called again after a crash, and by two processes after one another; none may rely on what
/// it kept in memory.
#[async_trait]
pub trait Provider: Send + Sync {
    /// What it can do.
    fn capability(&self) -> Capability;

    /// What could be had, when, at what price. Read-only.
    async fn offers(&self) -> Result<Vec<Offer>>;

    /// What of this scope exists, duplicates included. Read-only.
    ///
    /// # Behavior
    /// - Shows only what carries a tag of exactly this owner and cluster.
    /// - Shows every resource, also one that is broken, half made or half released.
    /// - Its answer may be late by no more than [`Capability::settle`].
    async fn observe(&self, scope: &Scope) -> Result<Vec<ObservedResource>> {
        let owned = self.owned(&scope.owner).await?;
        Ok(owned.into_iter().filter(|(tag, _)| scope.holds(tag)).map(|(_, found)| found).collect())
    }

    /// What of this owner exists, of whichever cluster, with the tag of each. Read-only.
    async fn owned(&self, owner: &Owner) -> Result<Vec<(Tag, ObservedResource)>>;

    /// What carries a tag of any owner and was made by the user whom we are logged in as, for who has lost their owner. Read-only.
    ///
    /// # Behavior
    /// - Leaves out what is known to be another user's.
    async fn tagged(&self) -> Result<Vec<(Tag, ObservedResource)>> {
        Ok(Vec::new())
    }

    /// Pins down what the spec leaves open, and refuses what cannot be had before anything is asked for. Read-only.
    ///
    /// # Behavior
    /// - Hands back the same hosts with the same settings; what it found goes into `found`.
    /// - Gives the same answer again for what exists already.
    async fn resolve(&self, _scope: &Scope, hosts: Vec<HostRequest>) -> Result<Resolved> {
        Ok(Resolved { hosts, ..Resolved::default() })
    }

    /// What these adopted resources are now; what is gone is not in it. Read-only.
    async fn observe_adopted(&self, _requests: &[ResourceRequest]) -> Result<Vec<ObservedResource>> {
        Ok(Vec::new())
    }

    /// Waits until what was acquired, or adopted, is usable; says what it waits for, and ends at a limit.
    ///
    /// # Behavior
    /// - May be called again, and for what is usable already.
    /// - An error whose status is `Temporary` means: released and acquired once more, it may come.
    async fn wait_usable(&self, _tag: &Tag, _request: &ResourceRequest, _id: &str) -> Result<()> {
        Ok(())
    }

    /// Reservations by time, where the provider has them.
    fn reservations(&self) -> Option<&dyn Reservations> {
        None
    }

    /// Which resources a host takes, in an order in which they can be acquired. Pure.
    ///
    /// # Behavior
    /// - Keys are unique within a host; `needs` refers to earlier ones only.
    /// - Exactly one of them is the host; a platform's cluster is none, so there it is not one of them.
    /// - A resource that two hosts share has the same key and the same request in both.
    fn expand(&self, scope: &Scope, request: &HostRequest) -> Result<Vec<ResourceRequest>>;

    /// Acquires one resource by one mutating call.
    ///
    /// # Behavior
    /// - Is idempotent by tag: with the same tag it hands back what is there and makes no second one.
    /// - Gives the id to the recorder before it goes on, and before it returns, also when the resource was there already;
    ///   when the recorder fails, so does this.
    /// - Returns when the call was accepted; `observe` tells when the resource is usable.
    /// - Finds what the request `needs` by its tag, since it is asked by key.
    /// - When it fails, the error says what is left behind; what is left shows in `observe`.
    /// - May be dropped at any await point; what it had begun then shows in `observe`.
    async fn acquire(&self, tag: &Tag, request: &ResourceRequest, recorder: &dyn Recorder) -> Result<Acquired>;

    /// Releases one resource, by what `observe` told of it.
    ///
    /// # Behavior
    /// - What is already gone is success.
    /// - Touches nothing but this id: not what took its key since.
    /// - May be dropped at any await point; what it had not finished still shows in `observe`, and the next call finishes it.
    async fn release(&self, scope: &Scope, resource: &ObservedResource) -> Result<()>;

    /// How to run commands on a host that was acquired and is usable; an error when it is not there.
    async fn place(&self, tag: &Tag, id: &str) -> Result<HostPlace>;

    /// The place of a host that stands there before it is acquired, so that it can be looked at for the plan. Pure.
    ///
    /// # Behavior
    /// - Where it is some, it equals what [`Provider::place`] tells once the host is acquired.
    fn standing(&self, _scope: &Scope, _request: &HostRequest) -> Option<HostPlace> {
        None
    }

    /// A request that this provider must refuse as `Permanent`, leaving nothing behind; for the conformance suite.
    fn refused_request(&self, key: &Key) -> ResourceRequest;
}
