//! What is asked of a provider, and what it has: hosts, resources, offers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Finding, Site};
use crate::host::SshTarget;
use crate::money::HourlyPrice;
use crate::name::Key;
use crate::util::digest;

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

/// Whether a resource can be used. In JSON: `usable` and `coming`, of which at most one is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "UsableAndComing")]
pub enum ResourceState {
    /// It can be used now.
    Usable,
    /// It will be usable without further calls: it is being created, or its time has not come.
    Coming,
    /// It cannot be used, and waiting does not help.
    Unusable,
}

#[derive(Serialize)]
struct UsableAndComing {
    usable: bool,
    coming: bool,
}

impl From<ResourceState> for UsableAndComing {
    fn from(state: ResourceState) -> Self {
        Self { usable: state == ResourceState::Usable, coming: state == ResourceState::Coming }
    }
}

/// A resource with our tag, as reported by the provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObservedResource {
    /// The key in its tag.
    pub key: Key,
    /// The kind of resource.
    pub kind: ResourceKind,
    /// The provider's id for it.
    pub id: String,
    /// Whether it can be used.
    #[serde(flatten)]
    pub state: ResourceState,
    /// It was not made for this cluster and is not released with it.
    pub adopted: bool,
    /// When the provider ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<jiff::Timestamp>,
    /// Why it is not usable, or other details.
    pub detail: String,
    /// The digest of the request that it has now, for a resource that carries it and can be changed in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl ObservedResource {
    /// Creates a usable resource of this cluster, without an end or details.
    pub fn existing(key: Key, kind: &str, id: impl Into<String>) -> Self {
        Self {
            key,
            kind: ResourceKind(kind.to_owned()),
            id: id.into(),
            state: ResourceState::Usable,
            adopted: false,
            until: None,
            detail: String::new(),
            digest: None,
        }
    }

    /// Whether it can be used now.
    pub fn is_usable(&self) -> bool {
        self.state == ResourceState::Usable
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_of_a_resource_has_two_words_for_its_state() {
        let found = ObservedResource::existing(Key::host(0), "instance", "i-1");
        for (state, usable, coming) in [
            (ResourceState::Usable, true, false),
            (ResourceState::Coming, false, true),
            (ResourceState::Unusable, false, false),
        ] {
            let json = serde_json::json!({
                "key": "host0", "kind": "instance", "id": "i-1", "usable": usable, "coming": coming, "adopted": false,
                "detail": "",
            });
            assert_eq!(serde_json::to_value(ObservedResource { state, ..found.clone() }).unwrap(), json);
        }
    }
}
