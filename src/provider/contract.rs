//! The traits and what passes through them.

use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Acquired, Capability, Manifest, Recorder};
use crate::error::Result;
use crate::event::Bus;
use crate::host::SshTarget;
use crate::name::{Key, Scope, Tag};

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
    /// Where to say what goes on.
    pub events: Bus,
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
    /// The resources it needs first.
    #[serde(default)]
    pub needs: Vec<Key>,
    /// It can be handed over as a host once it is acquired.
    #[serde(default)]
    pub is_host: bool,
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
    /// Why it cannot, or what else there is to know.
    #[serde(default)]
    pub detail: String,
}

/// GPUs of one kind in an offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuOffer {
    /// The product's name.
    pub model: String,
    /// How many.
    pub count: u32,
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
    /// What it costs an hour, in the provider's unit, such as `0.00 USD`; empty for nothing.
    pub price_per_hour: String,
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
    async fn observe(&self, scope: &Scope) -> Result<Vec<ObservedResource>>;

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
    fn standing(&self, _request: &HostRequest) -> Option<HostPlace> {
        None
    }

    /// A request that this provider must refuse as `Permanent`, leaving nothing behind; for the conformance suite.
    fn refused_request(&self, key: &Key) -> ResourceRequest;
}
