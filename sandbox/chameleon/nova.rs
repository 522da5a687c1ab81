//! Nova v2.1: servers, flavors, limits.

use jiff::Timestamp;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::super::answer::{Answer, Ask};
use super::super::clock::after;
use super::config::{Bug, HostConfig};
use super::format::{host_id, long, zulu};
use super::records::{Caller, FloatingIp, KeyPair, LeaseStatus, Port, Reserved, Server};
use super::state::{Item, State};

/// The first minor microversion that shows a server's flavor in full.
const FLAVOR_IN_FULL: u32 = 47;

impl Item for Server {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Server {
    /// The availability zone: the only hint for a user at where a server runs.
    pub(super) fn zone(&self) -> String {
        match (&self.host, &self.reservation) {
            (None, _) => String::new(),
            (Some(_), Some(reservation)) => format!("blazar_{reservation}"),
            (Some(_), None) => "nova".to_owned(),
        }
    }

    /// Nova's `hostId` of the server; empty without a host.
    pub(super) fn host_id(&self) -> String {
        self.host.as_ref().map(|host| host_id(&self.project_id, host)).unwrap_or_default()
    }
}

impl State {
    pub(super) fn compute(&mut self, ask: &Ask, caller: Option<&Caller>) -> Answer {
        let Some(caller) = caller else { return self.refused() };
        let minor = match ask.microversion() {
            Ok(minor) => minor,
            Err(asked) => {
                let text = format!("Version {asked} is not supported by the API. Minimum is 2.1 and maximum is 2.95.");
                let body = json!({"computeFault": {"code": 406, "message": text}}).to_string();
                return Answer::text(406, "application/json; charset=UTF-8", body)
                    .with("openstack-api-version", format!("compute {asked}"));
            }
        };
        self.route_compute(ask, caller, minor).with("openstack-api-version", format!("compute 2.{minor}"))
    }

    fn route_compute(&mut self, ask: &Ask, caller: &Caller, minor: u32) -> Answer {
        let (method, path) = ask.route();
        match (method, &path[..]) {
            ("GET", ["v2.1"]) => Answer::json(
                200,
                json!({"version": {"id": "v2.1", "status": "CURRENT", "version": "2.95", "min_version": "2.1",
                    "updated": "2013-07-23T11:33:21Z",
                    "links": [{"rel": "self", "href": format!("{}/compute/v2.1/", self.base)},
                        {"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"}],
                    "media-types": [{"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}]}}),
            ),
            ("GET", ["v2.1", "servers"]) => self.list_servers(ask, caller, |state, server| {
                json!({"id": server.id, "name": server.name, "links": state.links("servers", &server.id)})
            }),
            ("GET", ["v2.1", "servers", "detail"]) => {
                self.list_servers(ask, caller, |state, server| state.render_server(server, minor))
            }
            ("POST", ["v2.1", "servers"]) => match ask.json() {
                Some(body) => self.create_server(&body, caller),
                None => Answer::nova(400, "Malformed request body"),
            },
            (_, ["v2.1", "servers", id, rest @ ..]) => {
                if self.servers.get(id).is_none_or(|server| server.project_id != caller.project_id) {
                    return Answer::nova(404, format!("Instance {id} could not be found."));
                }
                self.one_server(ask, id, rest, minor)
            }
            ("GET", ["v2.1", "flavors"]) => {
                let all: Vec<Value> = FLAVORS
                    .iter()
                    .map(|(id, name, ..)| json!({"id": id, "name": name, "links": self.links("flavors", id)}))
                    .collect();
                Answer::json(200, json!({"flavors": all}))
            }
            ("GET", ["v2.1", "flavors", "detail"]) => {
                let all: Vec<Value> = FLAVORS.iter().map(|flavor| self.render_flavor(flavor)).collect();
                Answer::json(200, json!({"flavors": all}))
            }
            ("GET", ["v2.1", "flavors", id]) => match FLAVORS.iter().find(|flavor| flavor.0 == *id) {
                Some(flavor) => Answer::json(200, json!({"flavor": self.render_flavor(flavor)})),
                None => Answer::nova(404, format!("Flavor {id} could not be found.")),
            },
            ("GET", ["v2.1", "limits"]) => {
                let used = self.servers.all().filter(|server| server.project_id == caller.project_id).count();
                Answer::json(
                    200,
                    json!({"limits": {"rate": [], "absolute": {"maxTotalInstances": self.config.instance_quota,
                        "totalInstancesUsed": used, "maxTotalKeypairs": self.config.key_pair_quota,
                        "maxServerMeta": 128, "maxTotalCores": 200, "totalCoresUsed": used * 2,
                        "maxTotalRAMSize": 512_000, "totalRAMUsed": used * 8192}}}),
                )
            }
            (_, ["v2.1", "os-keypairs", rest @ ..]) => self.key_pairs(ask, caller, rest, minor),
            _ => Answer::nova(404, "The resource could not be found."),
        }
    }

    fn list_servers(&self, ask: &Ask, caller: &Caller, shown: impl Fn(&Self, &Server) -> Value) -> Answer {
        let name = ask.query("name").and_then(|name| Regex::new(name).ok());
        let status = ask.query("status").map(str::to_uppercase);
        let all = self.has(Bug::ListsForeign);
        let mut found: Vec<&Server> = self
            .servers
            .listed(self.now())
            .filter(|server| all || server.project_id == caller.project_id)
            .filter(|server| name.as_ref().is_none_or(|name| name.is_match(&server.name)))
            .filter(|server| status.as_ref().is_none_or(|status| status == server.status))
            .collect();
        // Newest first.
        found.reverse();
        let found: Vec<Value> = found.into_iter().map(|server| shown(self, server)).collect();
        Answer::json(200, json!({"servers": found}))
    }

    fn one_server(&mut self, ask: &Ask, id: &str, rest: &[&str], minor: u32) -> Answer {
        let missing = || Answer::nova(404, format!("Instance {id} could not be found."));
        match (ask.method.as_str(), rest) {
            ("GET", []) => match self.servers.get(id) {
                Some(server) => Answer::json(200, json!({"server": self.render_server(server, minor)})),
                None => missing(),
            },
            ("GET", ["ips"]) => match self.servers.get(id) {
                Some(server) => {
                    let mut addresses = self.addresses(server);
                    for list in addresses.values_mut().filter_map(Value::as_array_mut).flatten() {
                        *list = json!({"version": list["version"], "addr": list["addr"]});
                    }
                    Answer::json(200, json!({"addresses": addresses}))
                }
                None => missing(),
            },
            ("DELETE", []) => {
                let (gone, ignores) = (after(self.now(), self.config.deletion), self.has(Bug::DeleteDoesNothing));
                if let Some(server) = self.servers.get_mut(id)
                    && !ignores
                {
                    server.gone.get_or_insert(gone);
                }
                Answer::empty(204).with("content-type", "application/json")
            }
            ("POST" | "PUT", ["metadata"]) => {
                let asked = ask.json().unwrap_or_default();
                let Some(server) = self.servers.get_mut(id) else { return missing() };
                if ask.method == "PUT" {
                    server.metadata.clear();
                }
                for (key, value) in asked["metadata"].as_object().into_iter().flatten() {
                    server.metadata.insert(key.clone(), value.clone());
                }
                Answer::json(200, json!({"metadata": server.metadata}))
            }
            ("GET", ["metadata"]) => match self.servers.get(id) {
                Some(server) => Answer::json(200, json!({"metadata": server.metadata})),
                None => missing(),
            },
            ("POST", ["action"]) if ask.json().is_some_and(|body| body.get("os-getConsoleOutput").is_some()) => {
                Answer::json(200, json!({"output": "FAKE CONSOLE OUTPUT\nANOTHER\nLAST LINE"}))
            }
            _ => Answer::nova(404, "The resource could not be found."),
        }
    }

    fn create_server(&mut self, body: &Value, caller: &Caller) -> Answer {
        let server = match self.new_server(body, caller) {
            Ok(server) => server,
            Err(answer) => return answer,
        };
        let (location, shown) = (format!("{}/compute/v2.1/servers/{}", self.base, server.id), self.shown());
        let answer = json!({"server": {"id": server.id, "links": self.links("servers", &server.id), "OS-DCF:diskConfig": "MANUAL",
            "security_groups": [{"name": "default"}], "adminPass": &self.ids.hex()[..12]}});
        for copy in 0..self.copies() {
            let mut server = server.clone();
            if copy > 0 {
                server.id = self.ids.uuid();
            }
            self.servers.add(server, shown);
        }
        Answer::json(202, answer).with("location", location)
    }

    fn new_server(&mut self, body: &Value, caller: &Caller) -> Result<Server, Answer> {
        let asked = &body["server"];
        let text = |key: &str| asked[key].as_str().map(str::to_owned);
        let Some(name) = text("name").filter(|name| !name.is_empty()) else {
            return Err(Answer::nova(
                400,
                "Invalid input for field/attribute server. Value: {}. 'name' is a required property",
            ));
        };
        let Some(image) = text("imageRef").filter(|image| self.has_image(image)) else {
            return Err(Answer::nova(400, "Can not find requested image"));
        };
        let flavor = text("flavorRef").unwrap_or_default();
        if !FLAVORS.iter().any(|known| known.0 == flavor) {
            return Err(Answer::nova(400, format!("Flavor {flavor} could not be found.")));
        }
        let key_name = text("key_name");
        if let Some(key) = &key_name
            && self.keys.get(&KeyPair::id_of(&caller.user_id, key)).is_none()
        {
            return Err(Answer::nova(400, "Invalid key_name provided."));
        }
        let network = asked["networks"][0]["uuid"].as_str().unwrap_or_default().to_owned();
        if self.network_name(&network).is_none() {
            return Err(Answer::nova(400, format!("Network {network} could not be found.")));
        }
        let (used, quota) = (
            self.servers.all().filter(|server| server.project_id == caller.project_id).count(),
            self.config.instance_quota,
        );
        if used >= quota {
            return Err(Answer::nova(
                403,
                format!("Quota exceeded for instances: Requested 1, but already used {used} of {quota} instances"),
            ));
        }
        let hint = body["os:scheduler_hints"]["reservation"].as_str().map(str::to_owned);
        let host = self.schedule(hint.as_deref(), caller);
        let now = self.now();
        let ready = after(now, if host.is_some() { self.config.boot } else { self.config.schedule });
        let mut metadata: Map<String, Value> = asked["metadata"].as_object().cloned().unwrap_or_default();
        let too_long = metadata.iter().find(|(_, value)| value.as_str().is_none_or(|value| value.len() > 255));
        if let Some((key, value)) = too_long {
            let value = value.as_str().unwrap_or_default();
            let text = format!("Invalid input for field/attribute {key}. Value: {value}. '{value}' is too long");
            return Err(Answer::nova(400, text));
        }
        if self.has(Bug::LosesTags) {
            metadata.clear();
        }
        Ok(Server {
            id: self.ids.uuid(),
            name: self.kept(&name),
            user_id: caller.user_id.clone(),
            project_id: caller.project_id.clone(),
            image,
            flavor,
            network,
            key_name,
            user_data: text("user_data"),
            metadata,
            reservation: hint,
            host,
            status: "BUILD",
            fault: None,
            created: now,
            updated: now,
            launched: None,
            ready,
            gone: None,
        })
    }

    /// The host for a server: a free one of the reservation, one server per host.
    fn schedule(&self, hint: Option<&str>, caller: &Caller) -> Option<String> {
        let is_free =
            |host: &&HostConfig| !self.servers.all().any(|server| server.host.as_deref() == Some(&host.hypervisor));
        let Some(hint) = hint else {
            let free = self.config.hosts.iter().filter(|host| !host.owned_by_blazar).find(is_free);
            return free.map(|host| host.hypervisor.clone());
        };
        let lease = self.leases.all().find(|lease| lease.reservations.iter().any(|part| part.id == hint))?;
        if lease.project_id != caller.project_id || !matches!(lease.status, LeaseStatus::Active | LeaseStatus::Updating)
        {
            return None;
        }
        let part = lease.reservations.iter().find(|part| part.id == hint && part.status == "active")?;
        let Reserved::Hosts { hosts, .. } = &part.what else { return None };
        hosts.iter().filter_map(|id| self.host_by_id(id)).find(is_free).map(|host| host.hypervisor.clone())
    }

    fn links(&self, kind: &str, id: &str) -> Value {
        json!([{"rel": "self", "href": format!("{}/compute/v2.1/{kind}/{id}", self.base)}, self.bookmark(kind, id)])
    }

    fn bookmark(&self, kind: &str, id: &str) -> Value {
        json!({"rel": "bookmark", "href": format!("{}/compute/{kind}/{id}", self.base)})
    }

    fn addresses(&self, server: &Server) -> Map<String, Value> {
        let mut all = Map::new();
        for port in self.ports.all().filter(|port| port.server == server.id) {
            let shown = |address: &str, kind: &str| json!({"version": 4, "addr": address, "OS-EXT-IPS:type": kind, "OS-EXT-IPS-MAC:mac_addr": port.mac});
            let mut list = vec![shown(&port.address, "fixed")];
            list.extend(self.leading_to(port).map(|address| shown(&address.address, "floating")));
            all.insert(self.network_name(&port.network).unwrap_or_default(), Value::Array(list));
        }
        all
    }

    fn leading_to<'a>(&'a self, port: &'a Port) -> impl Iterator<Item = &'a FloatingIp> {
        self.floating_ips.all().filter(|address| address.port.as_ref() == Some(&port.id))
    }

    fn render_server(&self, server: &Server, minor: u32) -> Value {
        let flavor = FLAVORS.iter().find(|flavor| flavor.0 == server.flavor);
        let flavor = match flavor {
            Some((_, name, vcpus, ram, disk)) if minor >= FLAVOR_IN_FULL => {
                json!({"vcpus": vcpus, "ram": ram, "disk": disk, "ephemeral": 0, "swap": 0, "original_name": name, "extra_specs": {}})
            }
            _ => json!({"id": server.flavor, "links": [self.bookmark("flavors", &server.flavor)]}),
        };
        let (vm, power) = match server.status {
            "ACTIVE" => ("active", 1),
            "ERROR" => ("error", 0),
            _ => ("building", 0),
        };
        let task = match (server.gone, server.status) {
            (Some(_), _) => json!("deleting"),
            (None, "BUILD") if server.host.is_some() => json!("spawning"),
            (None, "BUILD") => json!("scheduling"),
            _ => Value::Null,
        };
        let mut all = json!({
            "id": server.id, "name": server.name, "status": server.status, "tenant_id": server.project_id,
            "user_id": server.user_id, "metadata": server.metadata, "hostId": if server.status == "BUILD" { String::new() } else { server.host_id() },
            "image": {"id": server.image, "links": [self.bookmark("images", &server.image)]}, "flavor": flavor,
            "created": zulu(server.created), "updated": zulu(server.updated), "addresses": self.addresses(server),
            "accessIPv4": "", "accessIPv6": "", "links": self.links("servers", &server.id), "OS-DCF:diskConfig": "MANUAL",
        });
        if server.status == "ERROR" {
            if let Some((text, at)) = &server.fault {
                all["fault"] = json!({"code": 500, "created": zulu(*at), "message": text});
            }
        } else {
            all["progress"] = json!(0);
            if server.status == "ACTIVE" {
                all["security_groups"] = json!([{"name": "default"}]);
            }
        }
        let rest = json!({
            "OS-EXT-AZ:availability_zone": if server.status == "BUILD" { String::new() } else { server.zone() }, "config_drive": "", "key_name": server.key_name,
            "OS-SRV-USG:launched_at": server.launched.map(long), "OS-SRV-USG:terminated_at": null,
            "OS-EXT-STS:task_state": task, "OS-EXT-STS:vm_state": vm, "OS-EXT-STS:power_state": power,
            "os-extended-volumes:volumes_attached": [],
        });
        for (since, name, value) in
            [(9, "locked", json!(false)), (19, "description", json!(server.name)), (26, "tags", json!([]))]
        {
            if minor >= since {
                all[name] = value;
            }
        }
        if let (Value::Object(all), Value::Object(rest)) = (&mut all, rest) {
            all.extend(rest);
        }
        all
    }

    fn render_flavor(&self, (id, name, vcpus, ram, disk): &(&str, &str, u32, u32, u32)) -> Value {
        json!({"id": id, "name": name, "ram": ram, "disk": disk, "swap": "", "OS-FLV-EXT-DATA:ephemeral": 0,
            "OS-FLV-DISABLED:disabled": false, "vcpus": vcpus, "os-flavor-access:is_public": true, "rxtx_factor": 1.0,
            "links": self.links("flavors", id)})
    }

    pub(super) fn advance_servers(&mut self, now: Timestamp) {
        for id in self.servers.ids() {
            self.advance_server(&id, now);
        }
    }

    fn advance_server(&mut self, id: &str, now: Timestamp) {
        let Some(server) = self.servers.get(id) else { return };
        if server.gone.is_some_and(|gone| gone <= now) {
            self.remove_server(id);
            return;
        }
        if server.status != "BUILD" || now < server.ready {
            return;
        }
        let (ready, has_host) = (server.ready, server.host.is_some());
        let failure = if has_host {
            self.failures.pop_front()
        } else {
            Some("No valid host was found. There are not enough hosts available.".to_owned())
        };
        let mut port = None;
        if failure.is_none()
            && let Some(server) = self.servers.get(id).cloned()
        {
            port = Some(Port {
                id: self.ids.uuid(),
                project_id: server.project_id.clone(),
                network: server.network.clone(),
                server: server.id.clone(),
                zone: server.zone(),
                mac: self.ids.mac(),
                address: self.fixed_address(),
                status: "ACTIVE",
                created: ready,
            });
        }
        if let Some(server) = self.servers.get_mut(id) {
            server.updated = ready;
            match failure {
                Some(text) => {
                    server.status = "ERROR";
                    server.fault = Some((text, ready));
                }
                None => {
                    server.status = "ACTIVE";
                    server.launched = Some(ready);
                }
            }
        }
        if let Some(port) = port {
            let shown = self.shown();
            self.ports.add(port, shown);
        }
    }

    /// Removes a server with its ports, and detaches its floating IPs.
    pub(super) fn remove_server(&mut self, id: &str) {
        let until = self.hidden();
        self.servers.remove(id, until);
        let ports: Vec<String> =
            self.ports.all().filter(|port| port.server == id).map(|port| port.id.clone()).collect();
        for port in &ports {
            self.ports.remove(port, until);
        }
        for address in self.floating_ips.all_mut() {
            if address.port.as_ref().is_some_and(|port| ports.contains(port)) {
                address.port = None;
                address.status = "DOWN";
                address.revision += 2;
            }
        }
    }
}

impl Ask {
    /// The minor part of the requested Nova microversion; 1 by default, and an error with the text if unsupported.
    fn microversion(&self) -> Result<u32, String> {
        let asked = self
            .header("openstack-api-version")
            .and_then(|text| text.strip_prefix("compute "))
            .or_else(|| self.header("x-openstack-nova-api-version"));
        match asked {
            None => Ok(1),
            Some("latest") => Ok(95),
            Some(text) => text
                .strip_prefix("2.")
                .and_then(|minor| minor.parse().ok())
                .filter(|minor| (1..=95).contains(minor))
                .ok_or_else(|| text.to_owned()),
        }
    }
}

impl Answer {
    /// An error of Nova: its kind is the key.
    pub(super) fn nova(code: u16, message: impl Into<String>) -> Self {
        let kind = match code {
            400 => "badRequest",
            403 => "forbidden",
            404 => "itemNotFound",
            409 => "conflictingRequest",
            _ => "computeFault",
        };
        let body = json!({kind: {"code": code, "message": message.into()}});
        Self::text(code, "application/json; charset=UTF-8", body.to_string())
    }
}

/// Id, name, vCPUs, memory in MiB, disk in GiB.
const FLAVORS: [(&str, &str, u32, u32, u32); 2] =
    [("2", "m1.small", 1, 512, 1), ("baremetal", "baremetal", 2, 8192, 20)];
