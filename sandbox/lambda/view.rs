//! Resources as the API shows them.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::clock::after;
use super::config::{ImageConfig, TypeConfig};
use super::state::{FileSystem, Host, Instance, Phase, Ruleset, SshKey, State};

impl State {
    pub(super) fn region_view(&self, name: &str) -> Value {
        let description = self.region(name).map(|region| region.description.clone()).unwrap_or_default();
        json!({"name": name, "description": description})
    }

    /// The address that the API shows; `None` until it does.
    pub(super) fn address_of(&self, instance: &Instance, now: Timestamp) -> Option<String> {
        let is_hidden = instance.outcome == super::config::Outcome::NoAddress
            || matches!(instance.phase, Phase::Terminated { .. })
            || after(instance.launched, self.config.address) > now;
        match instance.host {
            _ if is_hidden => None,
            Host::MadeUp => Some(instance.made_up.clone()),
            Host::Awaited { .. } => None,
            Host::At(address) => Some(address.ip().to_string()),
        }
    }

    pub(super) fn instance_view(&self, instance: &Instance) -> Value {
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

    pub(super) fn file_system_view(&self, system: &FileSystem) -> Value {
        let is_in_use = self.uses_file_system(&system.id);
        json!({
            "id": system.id, "name": system.name, "mount_point": mount_point(&system.name), "created": system.created,
            "created_by": {
                "id": super::super::ids::hex(system.by.name().as_bytes())[..32],
                "email": format!("{}@example.com", system.by.name()), "status": "active",
            },
            "is_in_use": is_in_use, "region": self.region_view(&system.region), "bytes_used": 0,
        })
    }

    pub(super) fn uses_file_system(&self, id: &str) -> bool {
        self.instances
            .iter()
            .any(|instance| instance.holds() && instance.mounts.iter().any(|(mounted, _)| mounted == id))
    }

    /// Ids of the instances that a ruleset is attached to.
    pub(super) fn users_of_ruleset(&self, id: &str) -> Vec<&str> {
        let uses = |instance: &&Instance| instance.holds() && instance.rulesets.iter().any(|attached| attached == id);
        self.instances.iter().filter(uses).map(|instance| instance.id.as_str()).collect()
    }

    pub(super) fn ruleset_view(&self, ruleset: &Ruleset) -> Value {
        json!({
            "id": ruleset.id, "name": ruleset.name, "region": self.region_view(&ruleset.region), "rules": ruleset.rules,
            "created": ruleset.created, "instance_ids": self.users_of_ruleset(&ruleset.id),
        })
    }

    pub(super) fn image_view(&self, image: &ImageConfig, region: &str) -> Value {
        let made = "2026-07-01T00:00:00.000Z";
        json!({
            "id": image_id(image, region), "created_time": made, "updated_time": made,
            "name": format!("{}-{}", image.family, image.version), "description": image.description,
            "family": image.family, "version": image.version, "architecture": if image.arm { "arm64" } else { "x86_64" },
            "region": self.region_view(region),
        })
    }
}

/// Id of an image in a region.
pub(super) fn image_id(image: &ImageConfig, region: &str) -> String {
    let named = format!("{} {} {} {region}", image.family, image.version, image.arm);
    super::super::ids::dashed(&super::super::ids::hex(named.as_bytes()))
}

/// Default mount point of a file system.
pub(super) fn mount_point(name: &str) -> String {
    format!("/lambda/nfs/{name}")
}

pub(super) fn key_view(key: &SshKey) -> Value {
    json!({"id": key.id, "name": key.name, "public_key": key.public_key})
}

pub(super) fn kind_view(kind: &TypeConfig) -> Value {
    let description =
        if kind.gpus == 0 { format!("{}x CPU General", kind.vcpus) } else { format!("{}x {}", kind.gpus, kind.gpu) };
    json!({
        "name": kind.name, "description": description, "gpu_description": kind.gpu, "price_cents_per_hour": kind.cents,
        "specs": {"vcpus": kind.vcpus, "memory_gib": kind.memory_gib, "storage_gib": kind.storage_gib, "gpus": kind.gpus},
    })
}

/// Reason codes why an instance cannot be restarted or terminated now.
pub(super) fn blocked(instance: &Instance) -> [Option<&'static str>; 2] {
    let (restart, terminate) = match instance.phase {
        Phase::Booting { .. } => (Some("vm-has-not-launched"), None),
        Phase::Active | Phase::Unhealthy => (None, None),
        Phase::Terminating { .. } | Phase::Terminated { .. } | Phase::Preempted { .. } => {
            (Some("vm-is-terminating"), Some("vm-is-terminating"))
        }
    };
    [restart, if instance.refusals > 0 { Some("vm-action-in-progress") } else { terminate }]
}

fn actions(instance: &Instance) -> Value {
    let [restart, terminate] = blocked(instance);
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
