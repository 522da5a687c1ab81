//! Data types of Nova, Glance and Neutron: servers, keys, images, networks, floating IPs.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::lenient;

#[derive(Debug, Clone)]
pub(crate) struct NewServer {
    pub(crate) name: String,
    /// The image, by id.
    pub(crate) image: String,
    /// The flavor, by id.
    pub(crate) flavor: String,
    /// The network, by id.
    pub(crate) network: String,
    /// The key pair, by name.
    pub(crate) key_name: Option<String>,
    /// User data as plain text; contains the host's private SSH key.
    pub(crate) user_data: Option<SecretString>,
    /// The id of the reservation whose host to boot.
    pub(crate) reservation: String,
    pub(crate) metadata: BTreeMap<String, String>,
}

impl NewServer {
    /// The JSON body of the request.
    pub(crate) fn body(&self) -> Value {
        let mut server = json!({ "name": self.name, "imageRef": self.image, "flavorRef": self.flavor });
        if let Some(data) = &self.user_data {
            server["user_data"] = BASE64.encode(data.expose_secret()).into();
        }
        if let Some(key) = &self.key_name {
            server["key_name"] = key.as_str().into();
        }
        server["min_count"] = 1.into();
        server["max_count"] = 1.into();
        server["networks"] = json!([{ "uuid": self.network }]);
        if !self.metadata.is_empty() {
            server["metadata"] = json!(self.metadata);
        }
        json!({ "server": server, "os:scheduler_hints": { "reservation": self.reservation } })
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Server {
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) name: String,
    /// `BUILD`, `ACTIVE`, `ERROR`, or another.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) status: String,
    /// The current task, such as `spawning`.
    #[serde(default, rename = "OS-EXT-STS:task_state", deserialize_with = "lenient::some_text")]
    pub(crate) task: Option<String>,
    /// Why it is in `ERROR`.
    #[serde(default, deserialize_with = "fault")]
    pub(crate) fault: Option<String>,
    /// The user who made it.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) user_id: String,
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "addresses")]
    pub(crate) addresses: Vec<Address>,
}

impl Server {
    /// Its fixed addresses, without floating IPs.
    pub(crate) fn fixed_ips(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().filter(|address| !address.floating).map(|address| address.ip.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// The network's name.
    pub(crate) network: String,
    pub(crate) ip: String,
    /// Whether it is a floating IP.
    pub(crate) floating: bool,
}

fn fault<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let value = Value::deserialize(from)?;
    let text = value.get("message").map_or_else(|| lenient::as_text(&value), lenient::as_text);
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}

fn addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Address>, D::Error> {
    let networks = Option::<serde_json::Map<String, Value>>::deserialize(from)?.unwrap_or_default();
    let of_network = |(network, list): (String, Value)| {
        let list = list.as_array().cloned().unwrap_or_default();
        list.into_iter().map(move |address| Address {
            network: network.clone(),
            ip: address.get("addr").map(lenient::as_text).unwrap_or_default(),
            floating: address.get("OS-EXT-IPS:type").and_then(Value::as_str) == Some("floating"),
        })
    };
    Ok(networks.into_iter().flat_map(of_network).collect())
}

/// A flavor: a size of servers.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Flavor {
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
    /// `baremetal`, for example.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) name: String,
}

/// A key pair of our user.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct KeyPair {
    pub(crate) name: String,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) public_key: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Image {
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
    /// `active`, or another.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) status: String,
    /// `public`, `shared`, `private`, `community`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) visibility: String,
    /// Whether it is an outdated image, kept for users who know its id.
    #[serde(default, rename = "os_hidden", deserialize_with = "lenient::flag")]
    pub(crate) hidden: bool,
    #[serde(default, rename = "created_at", deserialize_with = "lenient::some_time")]
    pub(crate) created: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Network {
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
}

/// A port: a server's connection to a network.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Port {
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct FloatingIp {
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
    #[serde(default, rename = "floating_ip_address", deserialize_with = "lenient::text")]
    pub(crate) address: String,
    /// The description set at creation; any project member can change it.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) description: String,
    /// The port that it is attached to.
    #[serde(default, deserialize_with = "lenient::some_text")]
    pub(crate) port_id: Option<String>,
    /// The fixed address that it is mapped to.
    #[serde(default, rename = "fixed_ip_address", deserialize_with = "lenient::some_text")]
    pub(crate) fixed: Option<String>,
    /// The Neutron tags.
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    /// The project it belongs to.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) project_id: String,
    /// The owner of its port: a server, by id.
    #[serde(default, rename = "port_details", deserialize_with = "device")]
    pub(crate) device: Option<String>,
}

fn device<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(value.get("device_id").map(lenient::as_text).filter(|id| !id.is_empty()))
}
