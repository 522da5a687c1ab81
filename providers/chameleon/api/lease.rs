//! Data types of Blazar: leases, hosts, allocations.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::lenient;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Lease {
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
    /// The name; the only free-text field.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) name: String,
    /// The user who made it.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) user_id: String,
    #[serde(rename = "start_date", deserialize_with = "lenient::time")]
    pub(crate) start: Timestamp,
    #[serde(rename = "end_date", deserialize_with = "lenient::time")]
    pub(crate) end: Timestamp,
    /// `PENDING`, `STARTING`, `ACTIVE`, `UPDATING`, `TERMINATED`, `ERROR`, or another.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) status: String,
    /// Whether some of its hosts have failed.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub(crate) degraded: bool,
    #[serde(default, deserialize_with = "lenient::list")]
    pub(crate) reservations: Vec<Reservation>,
}

/// A reservation within a lease.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Reservation {
    /// Its id, which a server gives as scheduler hint to boot on its host.
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) id: String,
    /// `physical:host`, `virtual:floatingip`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) resource_type: String,
    /// The filter of requested hosts, as JSON.
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) resource_properties: String,
    /// Whether a failed host could not be replaced.
    #[serde(default, deserialize_with = "lenient::flag")]
    pub(crate) missing_resources: bool,
}

impl Reservation {
    /// Whether it reserves hosts.
    pub(crate) fn is_host(&self) -> bool {
        self.resource_type == "physical:host"
    }

    /// The requested value of a property: for `node_name` of `["=", "$node_name", "liqid01"]`, `liqid01`.
    pub(crate) fn asked(&self, property: &str) -> Option<String> {
        clause(&serde_json::from_str(&self.resource_properties).ok()?, property)
    }
}

/// The value of `property` in `["=", "$property", value]`, or in an `and` of such clauses.
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

#[derive(Debug, Clone)]
pub(crate) struct NewLease {
    /// The name, including our tag.
    pub(crate) name: String,
    /// `None` means now.
    pub(crate) start: Option<Timestamp>,
    pub(crate) end: Timestamp,
    pub(crate) reservations: Vec<NewReservation>,
}

/// The request for a reservation of hosts.
#[derive(Debug, Clone)]
pub(crate) struct NewReservation {
    /// The host filter: one flat clause as JSON, which all versions of the service accept. Never empty: a site would
    /// then insert its own.
    pub(crate) properties: String,
    /// The minimum number of hosts.
    pub(crate) min: u32,
    /// The maximum number of hosts.
    pub(crate) max: u32,
}

impl NewReservation {
    /// One host, by a unique property: `node_name` or `hypervisor_hostname`.
    pub(crate) fn host(property: &str, value: &str) -> Self {
        Self { properties: flat("=", property, value), min: 1, max: 1 }
    }
}

/// A clause in the format of the service's own client, blanks included.
fn flat(operator: &str, property: &str, value: &str) -> String {
    let quoted = |text: &str| Value::String(text.to_owned()).to_string();
    format!("[{}, {}, {}]", quoted(operator), quoted(&format!("${property}")), quoted(value))
}

/// A time in the only format that the service accepts: `2026-11-21 14:50`, UTC.
pub(crate) fn date(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M").to_string()
}

impl NewLease {
    /// The JSON body of the request.
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
    /// Nova's name of the host: on bare metal a UUID.
    pub(crate) hypervisor_hostname: String,
    /// Whether it can be reserved now.
    pub(crate) reservable: bool,
    /// All reported properties as text, such as `node_name`, `node_type`, `gpu.gpu_model`, `su_factor`.
    pub(crate) extra: BTreeMap<String, String>,
}

impl Host {
    /// A non-empty property.
    pub(crate) fn property(&self, name: &str) -> Option<&str> {
        self.extra.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The host's display name.
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
            // Reservable unless the service says otherwise.
            reservable: map.get("reservable").is_none_or(lenient::as_flag),
            extra: map.iter().map(|(key, value)| (key.clone(), lenient::as_text(value))).collect(),
        })
    }
}

/// The current and future bookings of a host.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Allocation {
    /// The host, by Blazar's id.
    #[serde(deserialize_with = "lenient::text")]
    pub(crate) resource_id: String,
    #[serde(default, deserialize_with = "lenient::list")]
    pub(crate) reservations: Vec<Allocated>,
}

/// One booking of a host.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Allocated {
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) id: String,
    #[serde(default, deserialize_with = "lenient::text")]
    pub(crate) lease_id: String,
    /// The start; some services omit both times.
    #[serde(default, rename = "start_date", deserialize_with = "lenient::some_time")]
    pub(crate) start: Option<Timestamp>,
    #[serde(default, rename = "end_date", deserialize_with = "lenient::some_time")]
    pub(crate) end: Option<Timestamp>,
    /// Extra data: at some sites the names of project and user.
    #[serde(default)]
    pub(crate) extras: Value,
}
