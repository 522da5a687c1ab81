//! What Blazar tells and takes: leases, hosts, allocations.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::lenient;

/// A lease.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Lease {
    /// Its id.
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
    /// Its name; the only field that a client may fill in.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) name: String,
    /// Who made it.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) user_id: String,
    /// When it begins.
    #[serde(rename = "start_date", deserialize_with = "lenient::time")]
    pub(crate) start: Timestamp,
    /// When it ends.
    #[serde(rename = "end_date", deserialize_with = "lenient::time")]
    pub(crate) end: Timestamp,
    /// `PENDING`, `STARTING`, `ACTIVE`, `UPDATING`, `TERMINATED`, `ERROR`, and what else there may be.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) status: String,
    /// Some of its hosts have failed.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub(crate) degraded: bool,
    /// What is reserved in it.
    #[serde(default, deserialize_with = "lenient::list")]
    pub(crate) reservations: Vec<Reservation>,
}

/// A part of a lease.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Reservation {
    /// Its id: what a server names to land on its host.
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
    /// `physical:host`, `virtual:floatingip`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) resource_type: String,
    /// Which hosts were asked for, as JSON.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) resource_properties: String,
    /// A host of it has failed and could not be replaced.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub(crate) missing_resources: bool,
}

impl Reservation {
    /// It is for hosts.
    pub(crate) fn is_host(&self) -> bool {
        self.resource_type == "physical:host"
    }

    /// The value that a property was asked to have: of `["=", "$node_name", "liqid01"]` that of `node_name`.
    pub(crate) fn asked(&self, property: &str) -> Option<String> {
        clause(&serde_json::from_str(&self.resource_properties).ok()?, property)
    }
}

/// The value of `property` in `["=", "$property", value]`, or in an `and` of such.
fn clause(value: &Value, property: &str) -> Option<String> {
    let parts = value.as_array()?;
    match parts.first()?.as_str()? {
        "and" => parts.iter().skip(1).find_map(|part| clause(part, property)),
        "=" | "==" => {
            let name = parts.get(1)?.as_str()?;
            (name.trim_start_matches('$') == property).then(|| parts.get(2).map(lenient::as_text))?
        }
        _ => None,
    }
}

/// A lease to be made.
#[derive(Debug, Clone)]
pub(crate) struct NewLease {
    /// Its name, with our tag.
    pub(crate) name: String,
    /// When it begins; `None` is now.
    pub(crate) start: Option<Timestamp>,
    /// When it ends.
    pub(crate) end: Timestamp,
    /// What is reserved.
    pub(crate) reservations: Vec<NewReservation>,
}

/// Hosts to be reserved.
#[derive(Debug, Clone)]
pub(crate) struct NewReservation {
    /// Which hosts: one flat clause as JSON, which all versions of the service take. Never empty: a site then fills in one of its own.
    pub(crate) properties: String,
    /// The fewest.
    pub(crate) min: u32,
    /// The most.
    pub(crate) max: u32,
}

impl NewReservation {
    /// One host, by a property that only it has: `node_name`, or `hypervisor_hostname`.
    pub(crate) fn host(property: &str, value: &str) -> Self {
        Self { properties: flat("=", property, value), min: 1, max: 1 }
    }
}

/// A clause in the form of the service's own client, blanks included.
fn flat(operator: &str, property: &str, value: &str) -> String {
    let quoted = |text: &str| Value::String(text.to_owned()).to_string();
    format!("[{}, {}, {}]", quoted(operator), quoted(&format!("${property}")), quoted(value))
}

/// A time in the only form that the service takes: `2026-11-21 14:50`, UTC.
pub(crate) fn date(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M").to_string()
}

impl NewLease {
    /// The request's body.
    pub(crate) fn body(&self) -> Value {
        let reservations: Vec<Value> = self
            .reservations
            .iter()
            .map(|reservation| {
                json!({
                    "resource_type": "physical:host", "min": reservation.min, "max": reservation.max,
                    "hypervisor_properties": "", "resource_properties": reservation.properties,
                })
            })
            .collect();
        json!({
            "name": self.name, "start_date": self.start.map_or_else(|| "now".to_owned(), date),
            "end_date": date(self.end), "reservations": reservations, "events": [], "before_end_date": null,
        })
    }
}

/// A host that can be reserved.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// Nova's name of it: on bare metal a UUID.
    pub(crate) hypervisor_hostname: String,
    /// It can be reserved now.
    pub(crate) reservable: bool,
    /// All that is told of it, as text: `node_name`, `node_type`, `gpu.gpu_model`, `su_factor` where there are such.
    pub(crate) extra: BTreeMap<String, String>,
}

impl Host {
    /// A property that is there and not empty.
    pub(crate) fn property(&self, name: &str) -> Option<&str> {
        self.extra.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// What a person calls it.
    pub(crate) fn name(&self) -> &str {
        self.property("node_name").unwrap_or(&self.hypervisor_hostname)
    }
}

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let map = serde_json::Map::deserialize(from)?;
        let value = |key: &str| map.get(key).cloned().unwrap_or_default();
        if lenient::as_text(&value("id")).is_empty() {
            return Err(serde::de::Error::missing_field("id"));
        }
        Ok(Self {
            hypervisor_hostname: lenient::as_text(&value("hypervisor_hostname")),
            // A service that does not tell lets it be tried.
            reservable: map.get("reservable").is_none_or(lenient::as_flag),
            extra: map.iter().map(|(key, value)| (key.clone(), lenient::as_text(value))).collect(),
        })
    }
}

/// When a host is taken. Only what has not ended is told.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Allocation {
    /// The host, by Blazar's id.
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) resource_id: String,
    /// Whose it is, and when.
    #[serde(default, deserialize_with = "lenient::list")]
    pub(crate) reservations: Vec<Allocated>,
}

/// One time in which a host is taken.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Allocated {
    /// The reservation.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) id: String,
    /// Its lease.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) lease_id: String,
    /// From when; some services do not tell.
    #[serde(default, rename = "start_date", deserialize_with = "lenient::some_time")]
    pub(crate) start: Option<Timestamp>,
    /// Until when.
    #[serde(default, rename = "end_date", deserialize_with = "lenient::some_time")]
    pub(crate) end: Option<Timestamp>,
    /// What else is told: the names of project and user, at some sites.
    #[serde(default)]
    pub(crate) extras: Value,
}
