//! What Nova, Glance and Neutron tell and take: servers, keys, images, networks, addresses.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::lenient;

/// A server to be made.
#[derive(Debug, Clone)]
pub(crate) struct NewServer {
    /// Its name.
    pub(crate) name: String,
    /// The image, by id.
    pub(crate) image: String,
    /// The flavor, by id.
    pub(crate) flavor: String,
    /// The network, by id.
    pub(crate) network: String,
    /// The key pair, by name.
    pub(crate) key_name: Option<String>,
    /// User data as plain text; it holds the host's private key.
    pub(crate) user_data: Option<SecretString>,
    /// The reservation whose host it is to land on.
    pub(crate) reservation: String,
    /// What is written down beside it.
    pub(crate) metadata: BTreeMap<String, String>,
}

impl NewServer {
    /// The request's body.
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

/// A server.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Server {
    /// Its id.
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
    /// Its name.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) name: String,
    /// `BUILD`, `ACTIVE`, `ERROR`, and what else there may be.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) status: String,
    /// What it is doing, such as `spawning`.
    #[serde(default, rename = "OS-EXT-STS:task_state", deserialize_with = "lenient::some_text")]
    pub(crate) task: Option<String>,
    /// Why it is in `ERROR`.
    #[serde(default, deserialize_with = "fault")]
    pub(crate) fault: Option<String>,
    /// Who made it.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) user_id: String,
    /// What was written down beside it.
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
    /// Its addresses.
    #[serde(default, deserialize_with = "addresses")]
    pub(crate) addresses: Vec<Address>,
}

impl Server {
    /// Its addresses on networks of its own, without the floating ones.
    pub(crate) fn fixed_ips(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().filter(|address| !address.floating).map(|address| address.ip.as_str())
    }
}

/// An address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// The network's name.
    pub(crate) network: String,
    /// The address.
    pub(crate) ip: String,
    /// It is a floating one.
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

/// A size of servers.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Flavor {
    /// Its id.
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
    /// Its name: `baremetal`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) name: String,
}

/// A key pair of our user.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct KeyPair {
    /// Its name.
    pub(crate) name: String,
    /// The public key.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) public_key: String,
}

/// An image.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Image {
    /// Its id.
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
    /// `active`, and what else there may be.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) status: String,
    /// `public`, `shared`, `private`, `community`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) visibility: String,
    /// It is an old one that is kept for those who know its id.
    #[serde(default, rename = "os_hidden", deserialize_with = "lenient::flag")]
    pub(crate) hidden: bool,
    /// When it was made.
    #[serde(default, rename = "created_at", deserialize_with = "lenient::some_time")]
    pub(crate) created: Option<Timestamp>,
}

/// A network.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Network {
    /// Its id.
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
}

/// A port: a server's place in a network.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Port {
    /// Its id.
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
}

/// A floating address.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct FloatingIp {
    /// Its id.
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
    /// The address.
    #[serde(default, rename = "floating_ip_address", deserialize_with = "lenient::text")]
    pub(crate) address: String,
    /// What was written beside it when it was made.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) description: String,
    /// The port that it leads to.
    #[serde(default, deserialize_with = "lenient::some_text")]
    pub(crate) port_id: Option<String>,
    /// The address behind it.
    #[serde(default, rename = "fixed_ip_address", deserialize_with = "lenient::some_text")]
    pub(crate) fixed: Option<String>,
    /// What else was written beside it.
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    /// The project it belongs to.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) project_id: String,
    /// What has the port that it leads to: a server, by id.
    #[serde(default, rename = "port_details", deserialize_with = "device")]
    pub(crate) device: Option<String>,
}

fn device<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(value.get("device_id").map(lenient::as_text).filter(|id| !id.is_empty()))
}
