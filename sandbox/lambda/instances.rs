//! Instances: list, rename, launch, restart, terminate.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::answer::{Answer, Ask};
use super::super::clock::after;
use super::catalog::ImageConfig;
use super::config::{Account, Bug, Outcome};
use super::offers::{image_id, kind_view};
use super::records::{Host, Instance, Phase};
use super::refusal::{Refusal, data};
use super::state::State;
use super::storage::mount_point;

/// The longest user data, in bytes.
const LONGEST_USER_DATA: usize = 1_000_000;

/// A launch request whose names were all resolved.
struct Launch {
    kind: String,
    region: String,
    key_names: Vec<String>,
    public_keys: Vec<String>,
    mounts: Vec<(String, String)>,
    image: String,
    rulesets: Vec<String>,
}

impl State {
    /// All instances that lists show.
    pub(super) fn list_instances(&self, ask: &Ask) -> Answer {
        let now = self.now();
        // No cluster can be made with this API, so none has instances.
        let is_meant = |instance: &&Instance| instance.shown <= now && ask.query("cluster_id").is_none();
        let views = self.instances.iter().filter(is_meant).map(|instance| self.instance_view(instance));
        data(json!(views.collect::<Vec<_>>()))
    }

    pub(super) fn get_instance(&self, id: &str) -> Answer {
        let now = self.now();
        let found = self.instances.iter().find(|instance| instance.id == id && instance.shown <= now);
        found.map_or_else(|| Refusal::InstanceNotFound.plain(), |instance| data(self.instance_view(instance)))
    }

    pub(super) fn rename_instance(&mut self, id: &str, body: &Value) -> Answer {
        let Some(instance) = self.instance(id) else { return Refusal::InstanceNotFound.plain() };
        if let Some(name) = body["name"].as_str() {
            instance.name = name.to_owned();
        }
        self.get_instance(id)
    }

    pub(super) fn launch(&mut self, body: &Value) -> Answer {
        if self.config.account == Account::NoAddress {
            return Refusal::InvalidBillingAddress.plain();
        }
        let found = match self.look_up(body) {
            Ok(found) => found,
            Err(refused) => return refused,
        };
        if self.instances.iter().filter(|instance| instance.is_billed()).count() >= self.config.instance_quota {
            return Refusal::QuotaExceeded.plain();
        }
        let place = (found.kind.clone(), found.region.clone());
        match self.free.get_mut(&place) {
            Some(free) if free.count > 0 && !free.is_phantom => free.count -= 1,
            _ => return Refusal::InsufficientCapacity.plain(),
        }
        let made = self.made(found, body);
        let id = made.id.clone();
        for number in 0..self.times() {
            let id = if number == 0 { made.id.clone() } else { self.ids.hex() };
            self.instances.push(Instance { id, ..made.clone() });
        }
        data(json!({"instance_ids": [id]}))
    }

    /// Resolves the names in a launch request; refuses those that do not exist.
    fn look_up(&self, body: &Value) -> Result<Launch, Answer> {
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let list = |name: &str| body[name].as_array().cloned().unwrap_or_default();
        let missing = |what: &str| {
            let refused = Refusal::LaunchResourceNotFound.says(format!("{what} does not exist."));
            Answer { status: self.config.missing, ..refused }
        };
        let (kind, region) = (text("instance_type_name"), text("region_name"));
        let Some(known) = self.kind(&kind) else { return Err(missing(&format!("Instance type {kind}"))) };
        if self.region(&region).is_none() {
            return Err(missing(&format!("Region {region}")));
        }
        let key_names: Vec<String> =
            list("ssh_key_names").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let [key_name] = &key_names[..] else {
            return Err(Refusal::InvalidParameters.says("Exactly one SSH key must be specified."));
        };
        let Some(key) = self.keys.iter().find(|key| &key.name == key_name) else {
            return Err(missing(&format!("SSH key {key_name}")));
        };
        if body["user_data"].as_str().is_some_and(|data| data.len() > LONGEST_USER_DATA) {
            return Err(Refusal::InvalidParameters.says("user_data cannot exceed 1MB."));
        }
        let mut mounts: Vec<(String, String)> = Vec::new();
        for mount in list("file_system_mounts") {
            let id = mount["file_system_id"].as_str().unwrap_or_default();
            let at = mount["mount_point"].as_str().unwrap_or_default();
            mounts.push((id.to_owned(), at.to_owned()));
        }
        for name in list("file_system_names").iter().filter_map(Value::as_str) {
            let Some(system) = self.file_systems.iter().find(|system| system.name == name) else {
                return Err(missing(&format!("Filesystem {name}")));
            };
            if !mounts.iter().any(|(id, _)| id == &system.id) {
                mounts.push((system.id.clone(), mount_point(name)));
            }
        }
        for (id, _) in &mounts {
            match self.file_systems.iter().find(|system| &system.id == id) {
                None => return Err(missing(&format!("Filesystem {id}"))),
                Some(system) if system.region != region => {
                    let text = format!("Filesystem {} is in {}, not in {region}.", system.name, system.region);
                    return Err(Refusal::FileSystemInWrongRegion.says(text));
                }
                Some(_) => {}
            }
        }
        let mut rulesets = Vec::new();
        for entry in list("firewall_rulesets") {
            let id = entry["id"].as_str().unwrap_or_default();
            match self.rulesets.iter().find(|ruleset| ruleset.id == id) {
                None => return Err(missing(&format!("Firewall ruleset {id}"))),
                Some(ruleset) if ruleset.region != region => {
                    let text = format!("Firewall ruleset {id} is in {}, not in {region}.", ruleset.region);
                    return Err(Refusal::InvalidParameters.says(text));
                }
                Some(ruleset) => rulesets.push(ruleset.id.clone()),
            }
        }
        let image = self.image_of(&body["image"], &region, known.arm).ok_or_else(|| missing("Image"))?;
        let public_keys = vec![key.public_key.clone()];
        Ok(Launch { kind, region, public_keys, key_names, mounts, image, rulesets })
    }

    /// The requested image, by id or as the newest of its family; by default the newest Lambda Stack.
    fn image_of(&self, asked: &Value, region: &str, arm: bool) -> Option<String> {
        let (id, family) = (asked["id"].as_str(), asked["family"].as_str());
        let family = family.or_else(|| id.is_none().then_some("lambda-stack-24-04"));
        let is_meant = |image: &&ImageConfig| {
            image.arm == arm
                && id.is_none_or(|id| image_id(image, region) == id)
                && family.is_none_or(|family| image.family == family)
        };
        self.config.images.iter().filter(is_meant).max_by_key(|image| &image.version).map(|image| image.family.clone())
    }

    fn made(&mut self, found: Launch, body: &Value) -> Instance {
        let (now, shown) = (self.now(), self.shown());
        let (made_up, private_ip) = self.next_addresses();
        let text = |name: &str| body[name].as_str().map(str::to_owned);
        let loses = self.has_bug(Bug::LosesTags);
        let tags = body["tags"].as_array().into_iter().flatten().filter(|_| !loses);
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_awaited = self.config.wired || self.config.hosts.is_some();
        Instance {
            id: self.ids.hex(),
            name: text("name").filter(|_| !loses).unwrap_or_default(),
            hostname: text("hostname"),
            user_data: text("user_data"),
            tags: tags.map(|tag| (word(&tag["key"]), word(&tag["value"]))).collect(),
            launched: now,
            shown,
            ended: None,
            phase: Phase::Booting { until: after(now, self.boot_of(&found.kind)) },
            outcome: self.outcomes.pop_front().unwrap_or(Outcome::Active),
            made_up,
            private_ip,
            host: if is_awaited { Host::Awaited { begun: false } } else { Host::MadeUp },
            answers: false,
            jupyter_token: self.ids.hex(),
            refusals: 0,
            is_strange: false,
            is_foreign: false,
            kind: found.kind,
            region: found.region,
            key_names: found.key_names,
            public_keys: found.public_keys,
            mounts: found.mounts,
            image: found.image,
            rulesets: found.rulesets,
        }
    }

    pub(super) fn restart(&mut self, body: &Value) -> Answer {
        let until = after(self.now(), self.config.restart);
        self.change_all(
            body,
            |instance| if instance.blocked()[0].is_some() { Err(Refusal::Conflict.plain()) } else { Ok(()) },
            |instance| {
                instance.outcome = Outcome::Active;
                instance.phase = Phase::Booting { until };
            },
            "restarted_instances",
        )
    }

    pub(super) fn terminate(&mut self, body: &Value) -> Answer {
        let (since, is_broken) = (self.now(), self.has_bug(Bug::DeleteDoesNothing));
        self.change_all(
            body,
            |instance| {
                if instance.refusals > 0 {
                    instance.refusals -= 1;
                    let text = format!("Instance {} cannot be terminated now.", instance.id);
                    return Err(Refusal::InvalidParameters.says(text));
                }
                if matches!(instance.phase, Phase::Terminated { .. }) {
                    return Err(Refusal::InstanceNotFound.plain());
                }
                Ok(())
            },
            |instance| {
                if !is_broken && !matches!(instance.phase, Phase::Terminating { .. }) {
                    instance.phase = Phase::Terminating { since };
                }
            },
            "terminated_instances",
        )
    }

    /// Changes all named instances, or none if one of them is refused.
    fn change_all(
        &mut self,
        body: &Value,
        mut is_fine: impl FnMut(&mut Instance) -> Result<(), Answer>,
        mut change: impl FnMut(&mut Instance),
        name: &str,
    ) -> Answer {
        let ids: Vec<String> = body["instance_ids"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        if ids.is_empty() {
            return Refusal::InvalidParameters.says("At least one instance must be specified.");
        }
        for id in &ids {
            let Some(instance) = self.instance(id) else { return Refusal::InstanceNotFound.plain() };
            if let Err(refused) = is_fine(instance) {
                return refused;
            }
        }
        self.instances.iter_mut().filter(|instance| ids.contains(&instance.id)).for_each(&mut change);
        let changed = self.instances.iter().filter(|instance| ids.contains(&instance.id));
        data(json!({name: changed.map(|instance| self.instance_view(instance)).collect::<Vec<_>>()}))
    }

    /// The address that the API shows; `None` until it does.
    pub(super) fn address_of(&self, instance: &Instance, now: Timestamp) -> Option<String> {
        let is_hidden = instance.outcome == Outcome::NoAddress
            || matches!(instance.phase, Phase::Terminated { .. })
            || after(instance.launched, self.config.address) > now;
        match instance.host {
            _ if is_hidden => None,
            Host::MadeUp => Some(instance.made_up.clone()),
            Host::Awaited { .. } => None,
            Host::At(address) => Some(address.ip().to_string()),
        }
    }

    fn instance_view(&self, instance: &Instance) -> Value {
        let mut view = Map::new();
        let mut put = |name: &str, value: Value| {
            view.insert(name.to_owned(), value);
        };
        let address = self.address_of(instance, self.now());
        put("id", json!(instance.id));
        if !instance.name.is_empty() {
            put("name", json!(instance.name));
        }
        if let Some(address) = &address {
            put("ip", json!(address));
            put("private_ip", json!(instance.private_ip));
        }
        put("status", json!(instance.status()));
        put("ssh_key_names", json!(instance.key_names));
        let name_of = |id: &str| self.file_systems.iter().find(|system| system.id == id).map(|found| &found.name);
        put("file_system_names", json!(instance.mounts.iter().filter_map(|(id, _)| name_of(id)).collect::<Vec<_>>()));
        if !instance.mounts.is_empty() {
            let mount = |(id, at): &(String, String)| json!({"mount_point": at, "file_system_id": id});
            put("file_system_mounts", json!(instance.mounts.iter().map(mount).collect::<Vec<_>>()));
        }
        put("region", self.region_view(&instance.region));
        put("instance_type", self.kind(&instance.kind).map(kind_view).unwrap_or_default());
        match (&instance.hostname, &address) {
            (Some(name), _) => put("hostname", json!(name)),
            (None, Some(address)) => put("hostname", json!(address.replace('.', "-"))),
            (None, None) => {}
        }
        if matches!(instance.phase, Phase::Active) && address.is_some() {
            put("jupyter_token", json!(instance.jupyter_token));
            let host = instance.id.get(..12).unwrap_or_default();
            put(
                "jupyter_url",
                json!(format!("https://jupyter-{host}.lambdaspaces.com/?token={}", instance.jupyter_token)),
            );
        }
        put("actions", actions(instance));
        let tags = instance.tags.iter().map(|(key, value)| json!({"key": key, "value": value}));
        put("tags", json!(tags.collect::<Vec<_>>()));
        let rulesets = instance.rulesets.iter().map(|id| json!({"id": id}));
        put("firewall_rulesets", json!(rulesets.collect::<Vec<_>>()));
        if self.config.unknown_fields {
            put("is_reserved", json!(false));
        }
        Value::Object(view)
    }
}

fn actions(instance: &Instance) -> Value {
    let [restart, terminate] = instance.blocked();
    let action = |blocked: Option<&str>| match blocked {
        None => json!({"available": true}),
        Some(code) => {
            json!({"available": false, "reason_code": code, "reason_description": code.replace("vm-", "The VM ").replace('-', " ")})
        }
    };
    json!({
        "migrate": action(restart), "rebuild": action(restart), "restart": action(restart), "cold_reboot": action(restart),
        "terminate": action(terminate),
    })
}
