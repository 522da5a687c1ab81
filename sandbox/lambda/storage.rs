//! File systems, each in one region.

use serde_json::{Value, json};

use super::super::answer::Answer;
use super::super::ids::hex;
use super::config::{Account, Bug, User};
use super::records::FileSystem;
use super::refusal::{Refusal, data};
use super::state::State;

impl State {
    pub(super) fn list_file_systems(&self) -> Answer {
        let now = self.now();
        let shown = self.file_systems.iter().filter(|system| system.shown <= now);
        data(json!(shown.map(|system| self.file_system_view(system)).collect::<Vec<_>>()))
    }

    pub(super) fn add_file_system(&mut self, body: &Value, by: User) -> Answer {
        if self.config.account == Account::NoAddress {
            return Refusal::InvalidBillingAddress.plain();
        }
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let (name, region) = (text("name"), text("region"));
        if self.region(&region).is_none() {
            return Refusal::InvalidParameters.says(format!("Region {region} does not exist."));
        }
        if self.file_systems.iter().any(|system| system.name == name) {
            return Refusal::Duplicate.says(format!("Filesystem {name} already exists."));
        }
        if self.file_systems.len() >= self.config.file_system_quota {
            return Refusal::QuotaExceeded.plain();
        }
        let (created, shown) = (self.now(), self.shown());
        let made = FileSystem { id: self.ids.hex(), name, region, created, shown, by };
        let view = self.file_system_view(&made);
        for number in 0..self.times() {
            let id = if number == 0 { made.id.clone() } else { self.ids.hex() };
            self.file_systems.push(FileSystem { id, ..made.clone() });
        }
        data(view)
    }

    pub(super) fn delete_file_system(&mut self, id: &str) -> Answer {
        if !self.file_systems.iter().any(|system| system.id == id) {
            return Refusal::FilesystemNotFound.plain();
        }
        if self.uses_file_system(id) {
            return Refusal::FilesystemInUse.says("Filesystem is in use.");
        }
        if !self.has_bug(Bug::DeleteDoesNothing) {
            self.file_systems.retain(|system| system.id != id);
        }
        data(json!({"deleted_ids": [id]}))
    }

    fn file_system_view(&self, system: &FileSystem) -> Value {
        let is_in_use = self.uses_file_system(&system.id);
        json!({
            "id": system.id, "name": system.name, "mount_point": mount_point(&system.name), "created": system.created,
            "created_by": {
                "id": hex(system.by.name().as_bytes())[..32],
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
}

/// Default mount point of a file system.
pub(super) fn mount_point(name: &str) -> String {
    format!("/lambda/nfs/{name}")
}
