//! Blazar v1: hosts, allocations, and the routes of leases.

use serde_json::{Map, Value, json};

use super::super::answer::{Answer, Ask};
use super::config::{Bug, HostConfig};
use super::format::{long, spaced, uuid_of};
use super::records::{Caller, Lease, Reserved};
use super::state::State;

impl State {
    pub(super) fn reservation(&mut self, ask: &Ask, caller: Option<&Caller>) -> Answer {
        if let ("GET", ["" | "versions"] | []) = (ask.method.as_str(), &ask.route().1[..]) {
            return Answer::json(
                300,
                json!({"versions": [
                    {"id": "v1.0", "status": "CURRENT", "links": [{"href": format!("{}/reservation/v1", self.base), "rel": "self"}],
                        "min_version": "1.0", "max_version": "1.0"},
                    {"id": "v2.0", "status": "DEPRECATED", "links": [{"href": format!("{}/reservation/v2", self.base), "rel": "self"}]}]}),
            );
        }
        let Some(caller) = caller else { return self.refused() };
        let asked = ask.header("content-type").map(|kind| kind.split(';').next().unwrap_or(kind).trim());
        if let Some(kind) = asked.filter(|kind| !ask.body.is_empty() && *kind != "application/json") {
            let text = format!("Content type '{kind}' isn't supported");
            return Answer::json(400, json!({"error": 400, "error_message": text}))
                .with("openstack-api-version", "reservation 1.0");
        }
        let Some(answer) = self.route_reservation(ask, caller) else {
            return Answer::json(
                404,
                json!({"error": 404, "error_message": "The requested URL was not found on the server. If you entered the URL \
                    manually please check your spelling and try again."}),
            );
        };
        // The service acts, and then fails to render its answer.
        if ask.header("accept").is_none_or(str::is_empty) {
            return Answer::text(500, "text/plain", NO_ACCEPT);
        }
        answer.with("openstack-api-version", "reservation 1.0")
    }

    fn route_reservation(&mut self, ask: &Ask, caller: &Caller) -> Option<Answer> {
        let (method, path) = ask.route();
        Some(match (method, &path[..]) {
            ("GET", ["v1", "os-hosts"]) => Answer::json(
                200,
                json!({"hosts": self.reservable().map(|host| self.render_host(host)).collect::<Vec<_>>()}),
            ),
            ("GET", ["v1", "os-hosts", "properties"]) => self.host_properties(ask),
            ("GET", ["v1", "os-hosts", "allocations"]) => {
                let lease = ask.query("lease_id");
                let reservation = ask.query("reservation_id");
                // Hosts without allocations are listed too, whatever the filter.
                let all: Vec<Value> = self.reservable().map(|host| self.allocation(host, lease, reservation)).collect();
                Answer::json(200, json!({"allocations": all}))
            }
            ("GET", ["v1", "os-hosts", id]) => match self.host_by_id(id) {
                Some(host) => Answer::json(200, json!({"host": self.render_host(host)})),
                None => not_found("host_id", id),
            },
            ("GET", ["v1", "os-hosts", id, "allocation"]) => match self.host_by_id(id) {
                Some(host) => Answer::json(200, json!({"allocation": self.allocation(host, None, None)})),
                None => not_found("host_id", id),
            },
            ("GET", ["v1", "leases"]) => {
                let all = self.has(Bug::ListsForeign);
                let leases = self.leases.listed(self.now());
                let leases: Vec<Value> = leases
                    .filter(|lease| all || lease.project_id == caller.project_id)
                    .map(|lease| self.render_lease(lease))
                    .collect();
                Answer::json(200, json!({"leases": leases}))
            }
            ("POST", ["v1", "leases"]) => match ask.json() {
                Some(body) => self.create_lease(&body, caller),
                None => not_json(),
            },
            ("GET", ["v1", "leases", id]) => match self.leases.get(id) {
                Some(lease) => Answer::json(200, json!({"lease": self.render_lease(lease)})),
                None => not_found("lease_id", id),
            },
            ("PUT", ["v1", "leases", id]) => match ask.json() {
                Some(body) => self.update_lease(id, &body),
                None => not_json(),
            },
            ("DELETE", ["v1", "leases", id]) => self.delete_lease(id),
            ("GET", ["v1", "leases", id, "hosts"]) if self.config.quirks.fork => match self.leases.get(id) {
                Some(lease) => {
                    let hosts: Vec<Value> = lease
                        .hosts()
                        .filter_map(|id| self.host_by_id(id))
                        .map(|host| json!({"id": host.id, "hypervisor_hostname": host.hypervisor}))
                        .collect();
                    Answer::json(200, json!({"hosts": hosts}))
                }
                None => not_found("lease_id", id),
            },
            _ => return None,
        })
    }

    /// Blazar's hosts, by id.
    pub(super) fn reservable(&self) -> impl Iterator<Item = &HostConfig> {
        let mut hosts: Vec<&HostConfig> = self.config.hosts.iter().filter(|host| host.owned_by_blazar).collect();
        hosts.sort_by_key(|host| (host.id.len(), host.id.clone()));
        hosts.into_iter()
    }

    pub(super) fn host_by_id(&self, id: &str) -> Option<&HostConfig> {
        self.config.hosts.iter().find(|host| host.owned_by_blazar && host.id == id)
    }

    /// A host as Blazar shows it, columns first.
    pub(super) fn render_host(&self, host: &HostConfig) -> Value {
        let mut all = json!({
            "created_at": spaced(self.started), "updated_at": null, "id": host.id, "vcpus": 2, "cpu_info": CPU_INFO,
            "hypervisor_type": "fake", "hypervisor_version": 1000, "hypervisor_hostname": host.hypervisor,
            "service_name": host.hypervisor, "memory_mb": 8192, "local_gb": 1028, "status": null, "availability_zone": "nova",
            "trust_id": uuid_of(&format!("trust {}", host.id)).replace('-', ""), "reservable": host.reservable,
        });
        for (name, value) in self.properties(host) {
            all[name] = value;
        }
        all
    }

    /// The properties of a host that its operators set; all are strings.
    pub(super) fn properties(&self, host: &HostConfig) -> Map<String, Value> {
        let vendor = if host.gpu_model.starts_with("MI") { "AMD" } else { "NVIDIA" };
        let at = self.config.hosts.iter().position(|other| other.name == host.name).unwrap_or_default() + 1;
        let mut all: Vec<(String, String)> = [
            ("architecture.platform_type", "x86_64"),
            ("architecture.smt_size", "64"),
            ("gpu.gpu", if host.gpu_count > 0 { "True" } else { "False" }),
            ("gpu.gpu_count", &host.gpu_count.to_string()),
            ("gpu.gpu_model", &host.gpu_model),
            ("gpu.gpu_vendor", vendor),
            ("main_memory.humanized_ram_size", "256 GiB"),
            ("node_name", &host.name),
            ("node_type", &host.kind),
            ("placement.node", &at.to_string()),
            ("placement.rack", "3"),
            ("reservable_by", "any"),
            ("su_factor", "1.0"),
            ("uid", &uuid_of(&host.name)),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        for (name, value) in &host.properties {
            all.retain(|(known, _)| known != name);
            all.push((name.clone(), value.clone()));
        }
        all.retain(|(_, value)| !value.is_empty());
        all.into_iter().map(|(name, value)| (name, Value::String(value))).collect()
    }

    fn host_properties(&self, ask: &Ask) -> Answer {
        let with_values = ask.query("detail").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let mut all: Map<String, Value> = Map::new();
        for host in self.reservable() {
            for (name, value) in self.properties(host) {
                let values = all.entry(name).or_insert_with(|| json!([]));
                if let Value::Array(values) = values
                    && !values.contains(&value)
                {
                    values.push(value);
                }
            }
        }
        let all: Vec<Value> = all
            .into_iter()
            .map(|(name, values)| {
                if with_values {
                    json!({"property": name, "private": false, "values": values})
                } else {
                    json!({"property": name})
                }
            })
            .collect();
        Answer::json(200, json!({"resource_properties": all}))
    }

    /// The reservations of a host, without those that have ended.
    fn allocation(&self, host: &HostConfig, lease: Option<&str>, reservation: Option<&str>) -> Value {
        let now = self.now();
        let mut found = Vec::new();
        for taken in self.leases.listed(now).filter(|taken| now < taken.end && lease.is_none_or(|id| id == taken.id)) {
            for part in &taken.reservations {
                let Reserved::Hosts { hosts, .. } = &part.what else { continue };
                if !hosts.contains(&host.id) || part.status == "deleted" || reservation.is_some_and(|id| id != part.id)
                {
                    continue;
                }
                let mut shown = json!({"id": part.id, "lease_id": taken.id, "start_date": long(taken.start),
                    "end_date": long(taken.end)});
                if self.config.quirks.extras {
                    let user = Self::names(&taken.user_id);
                    shown["extras"] = json!({"project_name": user.map_or("CHI-FOREIGN", |user| user.project()),
                        "user_name": user.map_or("somebody", |user| user.name())});
                }
                found.push((taken.start, shown));
            }
        }
        found.sort_by_key(|(start, _)| *start);
        let found: Vec<Value> = found.into_iter().map(|(_, shown)| shown).collect();
        json!({"resource_id": host.id, "reservations": found})
    }

    pub(super) fn render_lease(&self, lease: &Lease) -> Value {
        let reservations: Vec<Value> = lease
            .reservations
            .iter()
            .map(|part| {
                let mut shown = json!({"created_at": spaced(part.created), "updated_at": spaced(part.updated), "id": part.id,
                    "lease_id": lease.id, "resource_id": part.resource_id, "status": part.status,
                    "missing_resources": part.missing, "resources_changed": false});
                match &part.what {
                    Reserved::Hosts { hypervisor_properties, resource_properties, min, max, .. } => {
                        shown["resource_type"] = json!("physical:host");
                        shown["hypervisor_properties"] = json!(hypervisor_properties);
                        shown["resource_properties"] = json!(resource_properties);
                        shown["before_end"] = json!("default");
                        shown["min"] = json!(min);
                        shown["max"] = json!(max);
                        if self.config.quirks.fork {
                            shown["on_start"] = json!("default");
                        }
                    }
                    Reserved::Addresses { network_id, amount, required } => {
                        shown["resource_type"] = json!("virtual:floatingip");
                        shown["network_id"] = json!(network_id);
                        shown["amount"] = json!(amount);
                        shown["required_floatingips"] = required.clone();
                    }
                }
                shown
            })
            .collect();
        let events: Vec<Value> = lease
            .events
            .iter()
            .map(|event| {
                json!({"created_at": spaced(event.created), "updated_at": event.updated.map(spaced), "id": event.id,
                    "lease_id": lease.id, "event_type": event.kind, "time": long(event.time), "status": event.status})
            })
            .collect();
        json!({"created_at": spaced(lease.created), "updated_at": spaced(lease.updated), "id": lease.id, "name": lease.name,
            "user_id": lease.user_id, "project_id": lease.project_id, "start_date": long(lease.start),
            "end_date": long(lease.end), "trust_id": lease.trust_id, "status": lease.status.name(),
            "degraded": lease.degraded, "reservations": reservations, "events": events})
    }
}

impl Answer {
    pub(super) fn blazar(code: u16, message: impl Into<String>) -> Self {
        Self::json(code, json!({"error_code": code, "error_message": message.into(), "error_name": code}))
    }
}

/// Blazar's answer when it fails itself.
pub(super) fn internal_error() -> Answer {
    Answer::json(
        500,
        json!({"error_code": 500, "error_message": "Internal Server Error", "error_name": "INTERNAL_SERVER_ERROR"}),
    )
}

pub(super) fn not_found(kind: &str, id: &str) -> Answer {
    Answer::blazar(404, format!("Object with {{'{kind}': '{id}'}} not found"))
}

fn not_json() -> Answer {
    Answer::json(
        500,
        json!({"error": 500, "error_message": "The server encountered an internal error and was unable to complete your request. \
            Either the server is overloaded or there is an error in the application."}),
    )
}

/// The service's answer to a request without an `Accept` header.
const NO_ACCEPT: &str = "Traceback (most recent call last):\n  File \"blazar/api/v1/utils.py\", line 94, in handler\n    \
    return func(flask.request, **kwargs)\n\
    werkzeug.exceptions.BadRequest: 400 Bad Request: Content type '' isn't supported";

const CPU_INFO: &str = r#"{"arch": "x86_64", "model": "Nehalem", "vendor": "Intel", "features": ["pge", "clflush"], "topology": {"cores": 1, "threads": 1, "sockets": 4}}"#;
