//! Data types of Lambda's API. Unknown fields are ignored, and so are two that hold a secret: an instance's Jupyter
//! token and the URL that contains it.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::money::HourlyPrice;

/// Reads a value, or its default if it is absent or null.
fn some<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Instance {
    pub(crate) id: String,
    /// The name; any user of the account may change it.
    #[serde(default, deserialize_with = "some")]
    pub(crate) name: String,
    /// The public address; assigned late.
    #[serde(default)]
    pub(crate) ip: Option<String>,
    /// The address within the region.
    #[serde(default)]
    pub(crate) private_ip: Option<String>,
    pub(crate) status: Status,
    #[serde(default, deserialize_with = "some")]
    pub(crate) ssh_key_names: Vec<String>,
    pub(crate) region: Region,
    pub(crate) instance_type: InstanceType,
    /// The actions that are available now.
    #[serde(default, deserialize_with = "some")]
    pub(crate) actions: Actions,
    /// The tags set at launch.
    #[serde(default, deserialize_with = "some")]
    pub(crate) tags: Vec<TagEntry>,
}

impl Instance {
    pub(crate) fn tag(&self, key: &str) -> Option<&str> {
        self.tags.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
    }

    /// The public address, if it has a valid one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        address_in(self.ip.as_deref())
    }

    /// The address within the region, if it has a valid one.
    pub(crate) fn private_address(&self) -> Option<IpAddr> {
        address_in(self.private_ip.as_deref())
    }
}

/// Parses an IP address; `None` if invalid. The address is written to `ssh_config` and firewall rules, and an instance
/// with an invalid one must still be listed and terminable.
fn address_in(text: Option<&str>) -> Option<IpAddr> {
    text?.trim().parse().ok()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    Booting,
    Active,
    Unhealthy,
    Terminated,
    Terminating,
    Preempted,
    /// A status unknown to this version.
    Other(String),
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Ok(match text.as_str() {
            "booting" => Self::Booting,
            "active" => Self::Active,
            "unhealthy" => Self::Unhealthy,
            "terminated" => Self::Terminated,
            "terminating" => Self::Terminating,
            "preempted" => Self::Preempted,
            _ => Self::Other(text),
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Booting => "booting",
            Self::Active => "active",
            Self::Unhealthy => "unhealthy",
            Self::Terminated => "terminated",
            Self::Terminating => "terminating",
            Self::Preempted => "preempted",
            Self::Other(text) => text,
        })
    }
}

/// The available actions of an instance; only those we use.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Actions {
    #[serde(default, deserialize_with = "some")]
    pub(crate) terminate: Availability,
}

/// Whether an action is available, and if not, why.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Availability {
    #[serde(default = "yes")]
    pub(crate) available: bool,
    #[serde(default, deserialize_with = "some")]
    pub(crate) reason_code: String,
}

impl Default for Availability {
    fn default() -> Self {
        Self { available: true, reason_code: String::new() }
    }
}

fn yes() -> bool {
    true
}

/// A tag: key and value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TagEntry {
    pub(crate) key: String,
    pub(crate) value: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Region {
    /// `us-east-1`.
    pub(crate) name: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct InstanceType {
    /// `gpu_1x_a10`.
    pub(crate) name: String,
    /// `A10 (24 GB PCIe)`.
    #[serde(default, deserialize_with = "some")]
    pub(crate) gpu_description: String,
    #[serde(default, deserialize_with = "some")]
    pub(crate) price_cents_per_hour: u64,
    #[serde(default, deserialize_with = "some")]
    pub(crate) specs: Specs,
}

impl InstanceType {
    pub(crate) fn price(&self) -> HourlyPrice {
        HourlyPrice::cents(self.price_cents_per_hour)
    }
}

/// The hardware of a type.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Specs {
    #[serde(default, deserialize_with = "some")]
    pub(crate) vcpus: u32,
    #[serde(default, deserialize_with = "some")]
    pub(crate) memory_gib: u64,
    #[serde(default, deserialize_with = "some")]
    pub(crate) gpus: u32,
}

/// A type, and the regions with capacity for it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TypeItem {
    pub(crate) instance_type: InstanceType,
    #[serde(default, deserialize_with = "some")]
    pub(crate) regions_with_capacity_available: Vec<Region>,
}

/// An SSH key of the account.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SshKey {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default, deserialize_with = "some")]
    pub(crate) public_key: String,
}

impl SshKey {
    /// Whether it equals this public key, ignoring the comment.
    pub(crate) fn is(&self, public: &str) -> bool {
        let parts = |text: &str| text.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
        !public.trim().is_empty() && parts(&self.public_key) == parts(public)
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct FileSystem {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) region: Region,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Image {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "some")]
    pub(crate) name: String,
    #[serde(default, deserialize_with = "some")]
    pub(crate) family: String,
    #[serde(default, deserialize_with = "some")]
    pub(crate) architecture: String,
    pub(crate) region: Region,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Ruleset {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) region: Region,
    #[serde(default, deserialize_with = "some")]
    pub(crate) rules: Vec<Rule>,
    #[serde(default, deserialize_with = "some")]
    pub(crate) instance_ids: Vec<String>,
}

/// One rule that allows incoming traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) protocol: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) port_range: Option<[u16; 2]>,
    pub(crate) source_network: String,
    #[serde(default, deserialize_with = "some")]
    pub(crate) description: String,
}
