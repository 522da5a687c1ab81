//! The hardware of this machine: processors, memory, and the GPUs on its PCI bus.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::Result;
use crate::playbook::{Capacity, capacity_here};
use crate::provider::{GpuOffer, Offer};

/// The vendors of GPUs that Ray can use, by PCI id.
const VENDORS: [(&str, &str); 2] = [("10de", "NVIDIA"), ("1002", "AMD")];
/// The PCI classes of GPUs: VGA, 3D, display controller, processing accelerator.
const CLASSES: [&str; 4] = ["0300", "0302", "0380", "1200"];

/// Reads the machine's hardware below `root`, which is `/` except in tests.
pub(super) fn offer(root: &Path) -> Result<Offer> {
    // What a cluster's processes can have of it.
    let Capacity { cpus, memory, .. } = capacity_here(root)?;
    Ok(Offer {
        name: "local".to_owned(),
        place: "this machine".to_owned(),
        cpus,
        memory,
        gpus: gpus(&root.join("sys/bus/pci/devices")),
        price_per_hour: None,
        free: "now".to_owned(),
    })
}

/// The GPUs on the bus, counted by vendor and device. A machine without a PCI bus has none.
///
/// Names are as old as the list of PCI ids that is installed, if there is one; the ids are always right.
fn gpus(devices: &Path) -> Vec<GpuOffer> {
    let mut cards: BTreeMap<String, u32> = BTreeMap::new();
    for entry in fs_err::read_dir(devices).into_iter().flatten().flatten() {
        let id = |name: &str| {
            let text = fs_err::read_to_string(entry.path().join(name)).unwrap_or_default();
            text.trim().trim_start_matches("0x").to_ascii_lowercase()
        };
        let (vendor, class) = (id("vendor"), id("class"));
        let named = VENDORS.iter().find(|(known, _)| *known == vendor);
        let computes = class.get(..4).is_some_and(|class| CLASSES.contains(&class));
        if let (Some((_, name)), true) = (named, computes) {
            *cards.entry(format!("{name} {vendor}:{}", id("device"))).or_default() += 1;
        }
    }
    cards.into_iter().map(|(model, count)| GpuOffer { model, count: Some(count) }).collect()
}
