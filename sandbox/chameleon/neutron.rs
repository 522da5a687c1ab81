//! Neutron v2.0: networks, ports, floating IPs.

use serde_json::{Value, json};

use super::super::answer::{Answer, Ask};
use super::config::Bug;
use super::format::{uuid_of, zulu};
use super::records::{Caller, FloatingIp, Port};
use super::state::{Item, State};

/// Name of the network of the floating IPs.
const PUBLIC: &str = "public";

impl Item for Port {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Item for FloatingIp {
    fn id(&self) -> &str {
        &self.id
    }
}

impl State {
    pub(super) fn network(&mut self, ask: &Ask, caller: Option<&Caller>) -> Answer {
        if ask.method == "GET" && ask.path.is_empty() {
            return Answer::json(
                200,
                json!({"versions": [{"id": "v2.0", "status": "CURRENT",
                    "links": [{"rel": "self", "href": format!("{}/network/v2.0/", self.base)}]}]}),
            );
        }
        let Some(caller) = caller else { return self.refused() };
        let is_read = |part: &str| part.contains("json") || part.contains("*/*") || part.trim().is_empty();
        if ask.header("accept").is_some_and(|accept| !accept.split(',').any(is_read)) {
            return Answer::neutron(
                406,
                "HTTPNotAcceptable",
                "The server could not comply with the request since it is either malformed or otherwise incorrect.",
            );
        }
        let (method, path) = ask.route();
        let all = self.has(Bug::ListsForeign);
        if let Some(answer) = unknown_filter(ask) {
            return answer;
        }
        let (now, mine) = (self.now(), |project: &str| all || project == caller.project_id);
        let list = |name: &str, found: Vec<Value>| Answer::json(200, json!({name: filtered(ask, found)}));
        match (method, &path[..]) {
            ("GET", ["v2.0", "networks"]) => list("networks", self.networks()),
            ("GET", ["v2.0", "networks", id]) => match self.networks().into_iter().find(|network| network["id"] == *id)
            {
                Some(network) => Answer::json(200, json!({"network": network})),
                None => Answer::neutron(404, "NetworkNotFound", format!("Network {id} could not be found.")),
            },
            ("GET", ["v2.0", "subnets"]) => list("subnets", self.subnets()),
            ("GET", ["v2.0", "ports"]) => {
                let ports = self.ports.listed(now).filter(|port| mine(&port.project_id));
                list("ports", ports.map(|port| self.render_port(port)).collect())
            }
            ("GET", ["v2.0", "ports", id]) => match self.ports.get(id).filter(|port| mine(&port.project_id)) {
                Some(port) => Answer::json(200, json!({"port": self.render_port(port)})),
                None => Answer::neutron(404, "PortNotFound", format!("Port {id} could not be found.")),
            },
            ("GET", ["v2.0", "floatingips"]) => {
                let found = self.floating_ips.listed(now).filter(|address| mine(&address.project_id));
                list("floatingips", found.map(|address| self.render_floating(address)).collect())
            }
            ("POST", ["v2.0", "floatingips"]) => self.create_floating(&ask.json().unwrap_or_default(), caller),
            (_, ["v2.0", "floatingips", id, rest @ ..]) => {
                if self.floating_ips.get(id).is_none_or(|address| address.project_id != caller.project_id) {
                    return Answer::neutron(404, "FloatingIPNotFound", format!("Floating IP {id} could not be found"));
                }
                self.one_floating(ask, id, rest)
            }
            ("GET", ["v2.0", "quotas", project]) if *project == caller.project_id => Answer::json(
                200,
                json!({"quota": {"floatingip": self.config.floating_ip_quota, "network": 100, "port": 500, "router": 10, "subnet": 100}}),
            ),
            _ => Answer::neutron(404, "HTTPNotFound", "The resource could not be found."),
        }
    }

    fn network_id(name: &str) -> String {
        uuid_of(&format!("network {name}"))
    }

    /// Name of the network with this id, if servers can use it.
    pub(super) fn network_name(&self, id: &str) -> Option<String> {
        self.config.networks.iter().find(|name| Self::network_id(name) == id).cloned()
    }

    fn networks(&self) -> Vec<Value> {
        let made = zulu(self.started);
        let owner = Self::project_id("admin");
        let network = |name: &str, external: bool| {
            let mut all = json!({"id": Self::network_id(name), "name": name, "tenant_id": owner, "admin_state_up": true, "mtu": 1500,
                "status": "ACTIVE", "subnets": [uuid_of(&format!("subnet {name}"))], "shared": !external,
                "availability_zone_hints": [], "availability_zones": [], "ipv4_address_scope": null, "ipv6_address_scope": null,
                "router:external": external, "description": "", "port_security_enabled": true, "tags": [], "created_at": made,
                "updated_at": made, "revision_number": 2, "project_id": owner});
            if external {
                all["is_default"] = json!(false);
            }
            all
        };
        let mut all: Vec<Value> = self.config.networks.iter().map(|name| network(name, false)).collect();
        all.push(network(PUBLIC, true));
        all
    }

    fn subnets(&self) -> Vec<Value> {
        let names = self.config.networks.iter().map(|name| (name.as_str(), "10.140.80.0/22", "10.140.80.1"));
        names
            .chain([(PUBLIC, "192.0.2.0/24", "192.0.2.1")])
            .map(|(name, cidr, gateway)| {
                json!({"id": uuid_of(&format!("subnet {name}")), "name": format!("{name}-subnet"),
                    "network_id": Self::network_id(name), "ip_version": 4, "cidr": cidr, "gateway_ip": gateway, "enable_dhcp": true})
            })
            .collect()
    }

    fn render_port(&self, port: &Port) -> Value {
        let name = self.network_name(&port.network).unwrap_or_default();
        json!({"id": port.id, "name": "", "network_id": port.network, "tenant_id": port.project_id, "mac_address": port.mac,
            "admin_state_up": true, "status": port.status, "device_id": port.server,
            "device_owner": format!("compute:{}", port.zone),
            "fixed_ips": [{"subnet_id": uuid_of(&format!("subnet {name}")), "ip_address": port.address}],
            "allowed_address_pairs": [], "extra_dhcp_opts": [],
            "security_groups": [uuid_of(&format!("default {}", port.project_id))], "description": "",
            "binding:vnic_type": "normal", "port_security_enabled": true, "tags": [], "created_at": zulu(port.created),
            "updated_at": zulu(port.created), "revision_number": 3, "project_id": port.project_id})
    }

    pub(super) fn render_floating(&self, address: &FloatingIp) -> Value {
        let port = address.port.as_ref().and_then(|id| self.ports.get(id));
        let details = port.map(|port| {
            json!({"name": "", "network_id": port.network, "mac_address": port.mac, "admin_state_up": true, "status": port.status,
                "device_id": port.server, "device_owner": format!("compute:{}", port.zone)})
        });
        json!({"id": address.id, "tenant_id": address.project_id, "floating_ip_address": address.address,
            "floating_network_id": address.network, "router_id": port.map(|_| uuid_of("router")),
            "port_id": port.map(|port| &port.id), "fixed_ip_address": port.map(|port| &port.address), "status": address.status,
            "project_id": address.project_id, "description": address.description, "port_details": details, "tags": address.tags,
            "created_at": zulu(address.created), "updated_at": zulu(address.updated), "revision_number": address.revision})
    }

    fn create_floating(&mut self, body: &Value, caller: &Caller) -> Answer {
        let asked = &body["floatingip"];
        let Some(network) = asked["floating_network_id"].as_str() else {
            let text = "Failed to parse request. Required attribute 'floating_network_id' not specified";
            return Answer::neutron(400, "HTTPBadRequest", text);
        };
        if self.network_name(network).is_some() {
            let text = format!("Bad floatingip request: Network {network} is not a valid external network.");
            return Answer::neutron(400, "BadRequest", text);
        }
        if network != Self::network_id(PUBLIC) {
            return Answer::neutron(404, "NetworkNotFound", format!("Network {network} could not be found."));
        }
        let used = self.floating_ips.all().filter(|address| address.project_id == caller.project_id).count();
        if used >= self.config.floating_ip_quota {
            return Answer::neutron(409, "OverQuota", "Quota exceeded for resources: ['floatingip'].");
        }
        let now = self.now();
        let mut answer = None;
        for _ in 0..self.copies().max(1) {
            let Some(address) = self.free_address(10, self.config.floating_ips) else { break };
            let made = FloatingIp {
                id: self.ids.uuid(),
                user_id: caller.user_id.clone(),
                project_id: caller.project_id.clone(),
                address,
                network: network.to_owned(),
                description: self.kept(asked["description"].as_str().unwrap_or_default()),
                port: None,
                status: "DOWN",
                tags: Vec::new(),
                created: now,
                updated: now,
                revision: 0,
            };
            answer.get_or_insert_with(|| Answer::json(201, json!({"floatingip": self.render_floating(&made)})));
            if self.copies() > 0 {
                let shown = self.shown();
                self.floating_ips.add(made, shown);
            }
        }
        answer.unwrap_or_else(|| {
            let text = format!("No more IP addresses available on network {network}.");
            Answer::neutron(409, "IpAddressGenerationFailure", text)
        })
    }

    fn one_floating(&mut self, ask: &Ask, id: &str, rest: &[&str]) -> Answer {
        match (ask.method.as_str(), rest) {
            ("GET", []) => match self.floating_ips.get(id) {
                Some(address) => Answer::json(200, json!({"floatingip": self.render_floating(address)})),
                None => Answer::neutron(404, "FloatingIPNotFound", format!("Floating IP {id} could not be found")),
            },
            ("PUT", []) => self.update_floating(id, &ask.json().unwrap_or_default()["floatingip"]),
            ("DELETE", []) => {
                if !self.has(Bug::DeleteDoesNothing) {
                    let until = self.hidden();
                    self.floating_ips.remove(id, until);
                }
                Answer::empty(204)
            }
            ("PUT", ["tags"]) => {
                let tags = ask.json().and_then(|body| serde_json::from_value(body["tags"].clone()).ok());
                let tags: Vec<String> = tags.unwrap_or_default();
                if let Some(address) = self.floating_ips.get_mut(id) {
                    address.tags.clone_from(&tags);
                }
                Answer::json(200, json!({"tags": tags}))
            }
            _ => Answer::neutron(404, "HTTPNotFound", "The resource could not be found."),
        }
    }

    /// Updates a floating IP. The answer still has the old status; the next request shows the new one.
    fn update_floating(&mut self, id: &str, asked: &Value) -> Answer {
        let port = match &asked["port_id"] {
            Value::String(port) => match self.ports.get(port) {
                Some(found) => Some(found.clone()),
                None => return Answer::neutron(404, "PortNotFound", format!("Port {port} could not be found.")),
            },
            _ => None,
        };
        if let Some(port) = &port
            && let Some(other) =
                self.floating_ips.all().find(|other| other.port.as_ref() == Some(&port.id) && other.id != id)
        {
            let text = format!(
                "Cannot associate floating IP {} ({id}) with port {} using fixed IP {}, as that fixed IP already has a floating IP on \
                 external network {}.",
                self.floating_ips.get(id).map(|address| address.address.as_str()).unwrap_or_default(),
                port.id,
                port.address,
                other.network
            );
            return Answer::neutron(409, "FloatingIPPortAlreadyAssociated", text);
        }
        let now = self.now();
        let description = asked["description"].as_str().map(|text| self.kept(text));
        if let Some(address) = self.floating_ips.get_mut(id) {
            let before = (address.port.clone(), address.description.clone());
            if asked.get("port_id").is_some() {
                address.port = port.map(|port| port.id);
            }
            if let Some(description) = description {
                address.description = description;
            }
            if before != (address.port.clone(), address.description.clone()) {
                address.updated = now;
                address.revision += 1;
            }
        }
        let body = self.floating_ips.get(id).map(|address| self.render_floating(address));
        if let Some(address) = self.floating_ips.get_mut(id) {
            let status = if address.port.is_some() { "ACTIVE" } else { "DOWN" };
            address.revision += u32::from(address.status != status);
            address.status = status;
        }
        Answer::json(200, json!({"floatingip": body}))
    }

    /// A free address of the shared networks.
    pub(super) fn fixed_address(&self) -> String {
        let address = |number: u32| format!("10.140.{}.{}", 80 + number / 256, number % 256);
        let is_free = |address: &String| !self.ports.all().any(|port| &port.address == address);
        (10..1000).map(address).find(is_free).unwrap_or_else(|| address(1000))
    }

    /// A free address of the public network.
    pub(super) fn free_address(&self, from: usize, amount: usize) -> Option<String> {
        (from..from + amount)
            .map(|last| format!("192.0.{}.{}", 2 + last / 256, last % 256))
            .find(|address| !self.floating_ips.all().any(|other| &other.address == address))
    }
}

impl Answer {
    pub(super) fn neutron(code: u16, kind: &str, message: impl Into<String>) -> Self {
        Self::json(code, json!({"NeutronError": {"type": kind, "message": message.into(), "detail": ""}}))
    }
}

/// Query parameters of lists that are not filters.
const PAGING: [&str; 6] = ["fields", "limit", "marker", "sort_key", "sort_dir", "page_reverse"];

/// Supported filters of each list.
const FIELDS: [(&str, &str); 4] = [
    (
        "floatingips",
        "id tenant_id project_id floating_ip_address floating_network_id router_id port_id fixed_ip_address status description tags \
         tags-any not-tags not-tags-any revision_number",
    ),
    (
        "ports",
        "id name network_id tenant_id project_id mac_address admin_state_up status device_id device_owner fixed_ips security_groups \
         description tags tags-any not-tags not-tags-any revision_number",
    ),
    (
        "networks",
        "id name tenant_id project_id admin_state_up mtu status shared router:external description tags tags-any not-tags not-tags-any \
         is_default revision_number",
    ),
    ("subnets", "id name network_id tenant_id project_id ip_version cidr gateway_ip enable_dhcp description tags"),
];

fn unknown_filter(ask: &Ask) -> Option<Answer> {
    let fields = FIELDS.iter().find(|(list, _)| ask.path.len() == 2 && ask.path[1] == *list)?.1;
    let is_known = |key: &str| PAGING.contains(&key) || fields.split_whitespace().any(|field| field == key);
    let (unknown, _) = ask.query.iter().find(|(key, _)| !is_known(key))?;
    Some(Answer::neutron(400, "HTTPBadRequest", format!("['{unknown}'] is invalid attribute for filtering")))
}

/// Applies Neutron's filters: fields by value; `tags` matches all given tags.
fn filtered(ask: &Ask, mut found: Vec<Value>) -> Vec<Value> {
    for (key, asked) in &ask.query {
        if PAGING.contains(&key.as_str()) {
            continue;
        }
        found.retain(|item| match &item[key] {
            Value::Array(values) if key == "tags" => {
                asked.split(',').all(|tag| values.iter().any(|value| value == tag))
            }
            Value::String(value) => value == asked,
            Value::Bool(value) => (asked.eq_ignore_ascii_case("true") || asked == "1") == *value,
            Value::Null => asked.is_empty(),
            other => &other.to_string() == asked,
        });
    }
    found
}
