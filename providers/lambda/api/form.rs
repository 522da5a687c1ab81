//! What Lambda tells and takes. Fields that are not known are passed over, and so are two that hold a secret: the Jupyter token of
//! an instance and the address with it.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::money::HourlyPrice;

/// A value, or its default where it is absent or null.
fn some<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// An instance.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Instance {
    /// Its id.
    pub(crate) id: String,
    /// Its name; a person may change it.
    #[serde(default, deserialize_with = "some")]
    pub(crate) name: String,
    /// Its public address; comes late.
    #[serde(default)]
    pub(crate) ip: Option<String>,
    /// Its address within the region.
    #[serde(default)]
    pub(crate) private_ip: Option<String>,
    /// How far it is.
    pub(crate) status: Status,
    /// The names of the keys that log in.
    #[serde(default, deserialize_with = "some")]
    pub(crate) ssh_key_names: Vec<String>,
    /// Where it is.
    pub(crate) region: Region,
    /// What it is.
    pub(crate) instance_type: InstanceType,
    /// What can be done with it now.
    #[serde(default, deserialize_with = "some")]
    pub(crate) actions: Actions,
    /// What was written beside it when it was launched.
    #[serde(default, deserialize_with = "some")]
    pub(crate) tags: Vec<TagEntry>,
}

impl Instance {
    /// The value of a tag.
    pub(crate) fn tag(&self, key: &str) -> Option<&str> {
        self.tags.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
    }

    /// Its public address, when it has one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        address_in(self.ip.as_deref())
    }

    /// Its address within the region, when it has one.
    pub(crate) fn private_address(&self) -> Option<IpAddr> {
        address_in(self.private_ip.as_deref())
    }
}

/// The address that a text is. What is none is passed over: it is written into `ssh_config` and into firewall rules, and an
/// instance whose address cannot be read must still be seen, and ended.
fn address_in(text: Option<&str>) -> Option<IpAddr> {
    text?.trim().parse().ok()
}

/// How far an instance is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    Booting,
    Active,
    Unhealthy,
    Terminated,
    Terminating,
    Preempted,
    /// One that this version does not know.
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

/// What can be done with an instance now; only what we do is read.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Actions {
    #[serde(default, deserialize_with = "some")]
    pub(crate) terminate: Availability,
}

/// Whether something can be done.
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

/// A key and a value that were written beside something.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TagEntry {
    pub(crate) key: String,
    pub(crate) value: String,
}

/// A region.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Region {
    /// `us-east-1`.
    pub(crate) name: String,
}

/// A type of instance.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct InstanceType {
    /// `gpu_1x_a10`.
    pub(crate) name: String,
    /// `A10 (24 GB PCIe)`.
    #[serde(default, deserialize_with = "some")]
    pub(crate) gpu_description: String,
    /// What an hour costs, in cents of a dollar.
    #[serde(default, deserialize_with = "some")]
    pub(crate) price_cents_per_hour: u64,
    /// What it has.
    #[serde(default, deserialize_with = "some")]
    pub(crate) specs: Specs,
}

impl InstanceType {
    /// What an hour costs.
    pub(crate) fn price(&self) -> HourlyPrice {
        HourlyPrice::cents(self.price_cents_per_hour)
    }
}

/// What a type has.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Specs {
    #[serde(default, deserialize_with = "some")]
    pub(crate) vcpus: u32,
    #[serde(default, deserialize_with = "some")]
    pub(crate) memory_gib: u64,
    #[serde(default, deserialize_with = "some")]
    pub(crate) gpus: u32,
}

/// A type, and where it can be had.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct TypeItem {
    pub(crate) instance_type: InstanceType,
    #[serde(default, deserialize_with = "some")]
    pub(crate) regions_with_capacity_available: Vec<Region>,
}

/// A key that logs in.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SshKey {
    pub(crate) id: String,
    pub(crate) name: String,
    #[serde(default, deserialize_with = "some")]
    pub(crate) public_key: String,
}

impl SshKey {
    /// It is this key, whatever the comment behind it.
    pub(crate) fn is(&self, public: &str) -> bool {
        let parts = |text: &str| text.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
        !public.trim().is_empty() && parts(&self.public_key) == parts(public)
    }
}

/// A file system.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct FileSystem {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) region: Region,
}

/// An image.
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

/// Rules for what reaches the instances that have them.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Ruleset {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) region: Region,
    #[serde(default, deserialize_with = "some")]
    pub(crate) rules: Vec<Rule>,
}

/// One rule: what is let in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) protocol: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) port_range: Option<[u16; 2]>,
    pub(crate) source_network: String,
    #[serde(default, deserialize_with = "some")]
    pub(crate) description: String,
}
