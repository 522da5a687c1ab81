//! File systems, each in one region.

use serde_json::{Value, json};

use super::super::answer::Answer;
use super::config::{Account, Bug, User};
use super::instances::data;
use super::refusal::Refusal;
use super::state::{FileSystem, State};

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
}
