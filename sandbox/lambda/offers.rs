//! Offers: types with the regions that have capacity, regions, images.

use serde_json::{Map, Value, json};

use super::super::answer::Answer;
use super::instances::data;
use super::state::State;
use super::view::kind_view;

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
}
