//! Offers: types, regions, images, and free capacity.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::answer::Answer;
use super::super::clock::after;
use super::super::ids::{dashed, hex};
use super::catalog::{ImageConfig, RegionConfig, TypeConfig};
use super::refusal::data;
use super::state::State;

impl State {
    /// The list is advisory: its capacity may be gone at the launch.
    pub(super) fn list_types(&self) -> Answer {
        let mut view = Map::new();
        for kind in &self.config.types {
            let is_listed = |region: &str| {
                let free = self.free.get(&(kind.name.clone(), region.to_owned()));
                free.is_some_and(|free| free.is_phantom || free.count > 0)
            };
            let regions = self.config.regions.iter().filter(|region| is_listed(&region.name));
            let regions: Vec<Value> = regions.map(|region| self.region_view(&region.name)).collect();
            let mut item = json!({"instance_type": kind_view(kind), "regions_with_capacity_available": regions});
            if self.config.unknown_fields {
                item["is_new"] = json!(true);
            }
            view.insert(kind.name.clone(), item);
        }
        data(Value::Object(view))
    }

    pub(super) fn list_regions(&self) -> Answer {
        data(json!(self.config.regions.iter().map(|region| self.region_view(&region.name)).collect::<Vec<_>>()))
    }

    pub(super) fn list_images(&self) -> Answer {
        let regions = self.config.regions.iter();
        let images =
            regions.flat_map(|region| self.config.images.iter().map(|image| self.image_view(image, &region.name)));
        data(json!(images.collect::<Vec<_>>()))
    }

    pub(super) fn kind(&self, name: &str) -> Option<&TypeConfig> {
        self.config.types.iter().find(|kind| kind.name == name)
    }

    pub(super) fn region(&self, name: &str) -> Option<&RegionConfig> {
        self.config.regions.iter().find(|region| region.name == name)
    }

    /// Boot time of an instance type.
    pub(super) fn boot_of(&self, kind: &str) -> Duration {
        self.kind(kind).and_then(|kind| kind.boot).unwrap_or(self.config.boot)
    }

    pub(super) fn region_view(&self, name: &str) -> Value {
        let description = self.region(name).map(|region| region.description.clone()).unwrap_or_default();
        json!({"name": name, "description": description})
    }

    fn image_view(&self, image: &ImageConfig, region: &str) -> Value {
        let made = "2026-07-01T00:00:00.000Z";
        json!({
            "id": image_id(image, region), "created_time": made, "updated_time": made,
            "name": format!("{}-{}", image.family, image.version), "description": image.description,
            "family": image.family, "version": image.version, "architecture": if image.arm { "arm64" } else { "x86_64" },
            "region": self.region_view(region),
        })
    }

    /// Sets how many are free, after a delay.
    pub(super) fn free_in(&mut self, kind: &str, region: &str, count: u32, wait: Duration) {
        let place = (kind.to_owned(), region.to_owned());
        if wait.is_zero() {
            self.set_free(place, count);
        } else {
            self.coming.push((after(self.now(), wait), place, count));
        }
    }

    /// Takes all that are free away but keeps them listed; false if none were free.
    pub(super) fn vanish(&mut self, kind: &str, region: &str) -> bool {
        let Some(free) = self.free.get_mut(&(kind.to_owned(), region.to_owned())) else { return false };
        let any = free.count > 0;
        free.is_phantom = any;
        any
    }

    /// Sets how many are free; listed capacity matches it again.
    fn set_free(&mut self, place: (String, String), count: u32) {
        let free = self.free.entry(place).or_default();
        free.count = count;
        free.is_phantom = false;
    }

    /// Makes capacity free that was to come by now.
    pub(super) fn advance_capacity(&mut self, now: Timestamp) {
        for (at, place, count) in std::mem::take(&mut self.coming) {
            if at <= now {
                self.set_free(place, count);
            } else {
                self.coming.push((at, place, count));
            }
        }
    }
}

pub(super) fn image_id(image: &ImageConfig, region: &str) -> String {
    let named = format!("{} {} {} {region}", image.family, image.version, image.arm);
    dashed(&hex(named.as_bytes()))
}

pub(super) fn kind_view(kind: &TypeConfig) -> Value {
    let description =
        if kind.gpus == 0 { format!("{}x CPU General", kind.vcpus) } else { format!("{}x {}", kind.gpus, kind.gpu) };
    json!({
        "name": kind.name, "description": description, "gpu_description": kind.gpu, "price_cents_per_hour": kind.cents,
        "specs": {"vcpus": kind.vcpus, "memory_gib": kind.memory_gib, "storage_gib": kind.storage_gib, "gpus": kind.gpus},
    })
}
