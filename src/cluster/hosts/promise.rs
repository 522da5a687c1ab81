//! Compares the GPUs that a provider promised for a host with those found there.

use super::layout::{Layout, keys, number};
use crate::event::CheckOutcome;
use crate::name::Key;
use crate::playbook::{GpuFact, Vendor};
use crate::provider::GpuOffer;
use crate::spec::{GpuProof, Per, Spec, WorkerGroup};
use crate::state::ClusterState;

/// The result of the comparison for one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) host: Key,
    pub(super) outcome: CheckOutcome,
    pub(super) saw: String,
}

/// Compares the promised GPUs of each host with its facts.
pub(super) fn promises(layout: &Layout<'_>, known: &ClusterState) -> Vec<Compared> {
    if layout.spec.gpu == GpuProof::Declared {
        return Vec::new();
    }
    let compare = |host: Key| {
        let promised = known.host(&host)?.promised.as_ref()?;
        let found = &layout.host(&host).ok()?.facts.gpus;
        let (outcome, saw) = compare(promised, found, takes_gpus(layout.spec, number(&host)))?;
        Some(Compared { host, outcome, saw })
    };
    keys(layout.spec).into_iter().filter_map(compare).collect()
}

/// Whether the cluster's workers use the GPUs of this host.
fn takes_gpus(spec: &Spec, host: usize) -> bool {
    let takes = |group: &WorkerGroup| match group.per {
        Some(Per::Gpu) => true,
        Some(Per::Host) => group.gpus != Some(0),
        None => group.gpus.unwrap_or(0) > 0,
    };
    spec.ray.workers.groups().iter().any(|group| spec.runs_on(group, host) && takes(group))
}

/// Returns `None` if nothing was promised. Fewer GPUs than promised, or of another vendor, fail if workers use them.
fn compare(promised: &[GpuOffer], found: &[GpuFact], takes: bool) -> Option<(CheckOutcome, String)> {
    if promised.is_empty() {
        return None;
    }
    let least = |of: &mut dyn Iterator<Item = &GpuOffer>| of.map(|gpu| gpu.count.unwrap_or(1) as usize).sum::<usize>();
    let is_short = [Vendor::Nvidia, Vendor::Amd].into_iter().any(|vendor| {
        let there = found.iter().filter(|gpu| gpu.vendor == vendor).count();
        there < least(&mut promised.iter().filter(|gpu| vendor_of(&gpu.model) == Some(vendor)))
    }) || found.len() < least(&mut promised.iter());
    let sold: Vec<String> = promised.iter().filter_map(|gpu| product(&gpu.model)).collect();
    let mut there = found.iter().filter_map(|gpu| gpu.name.as_deref().and_then(product));
    let is_other = !sold.is_empty() && there.any(|product| !sold.contains(&product));
    let outcome = match (is_short, takes, is_other) {
        (true, true, _) => CheckOutcome::Failed,
        (true, false, _) | (false, _, true) => CheckOutcome::Noted,
        (false, _, false) => CheckOutcome::Passed,
    };
    let promised: Vec<String> = promised.iter().map(GpuOffer::describe).collect();
    Some((outcome, format!("promised {}, found {}", promised.join(" and "), describe(found))))
}

/// `1: NVIDIA A100-PCIE-40GB at 0000:10:00.0`.
fn describe(found: &[GpuFact]) -> String {
    let one = |gpu: &GpuFact| {
        let maker = match gpu.vendor {
            Vendor::Nvidia => "NVIDIA",
            Vendor::Amd => "AMD",
        };
        let name = gpu.name.clone().unwrap_or_else(|| format!("{maker} {}", gpu.device_id));
        format!("{name} at {}", gpu.pci)
    };
    match found {
        [] => "none".to_owned(),
        some => format!("{}: {}", some.len(), some.iter().map(one).collect::<Vec<_>>().join(", ")),
    }
}

/// The vendor of a product, if its name shows it.
fn vendor_of(model: &str) -> Option<Vendor> {
    let model = model.to_lowercase();
    let holds = |parts: &[&str]| parts.iter().any(|part| model.contains(part));
    if holds(&["amd", "instinct", "radeon", "mi100", "mi210", "mi250", "mi300", "mi325", "mi350"]) {
        Some(Vendor::Amd)
    } else if holds(&["nvidia", "tesla", "geforce", "quadro"]) {
        Some(Vendor::Nvidia)
    } else {
        None
    }
}

/// The word that identifies a product, such as `A100` or `MI100`: one or two letters, then two or more digits.
fn product(model: &str) -> Option<String> {
    model.split(|letter: char| !letter.is_ascii_alphanumeric()).find_map(|word| {
        let digits = word.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
        let letters = word.len() - digits.len();
        let is_product =
            (1..=2).contains(&letters) && digits.len() >= 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_product.then(|| word.to_uppercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(model: &str, count: impl Into<Option<u32>>) -> GpuOffer {
        GpuOffer { model: model.to_owned(), count: count.into() }
    }

    fn gpu(vendor: Vendor, pci: u8, name: Option<&str>) -> GpuFact {
        GpuFact {
            pci: format!("0000:{pci:02x}:00.0"),
            vendor,
            device_id: "0x20f1".to_owned(),
            driver: None,
            name: name.map(str::to_owned),
            uuid: None,
            memory: None,
            mig: None,
            render: None,
            unique_id: None,
        }
    }

    #[test]
    fn fewer_gpus_than_promised_are_a_failure() {
        let one = [gpu(Vendor::Nvidia, 16, Some("NVIDIA A100-PCIE-40GB"))];
        let promised = [offer("NVIDIA A100 PCIe 40GB", 2)];
        let (outcome, saw) = compare(&promised, &one, true).unwrap();
        assert_eq!(outcome, CheckOutcome::Failed);
        assert_eq!(saw, "promised 2 x NVIDIA A100 PCIe 40GB, found 1: NVIDIA A100-PCIE-40GB at 0000:10:00.0");
        let (outcome, saw) = compare(&promised, &[], true).unwrap();
        assert_eq!((outcome, saw.as_str()), (CheckOutcome::Failed, "promised 2 x NVIDIA A100 PCIe 40GB, found none"));
        // It is noted even when no worker uses them.
        assert_eq!(compare(&promised, &one, false).unwrap().0, CheckOutcome::Noted);
        let two = [one[0].clone(), gpu(Vendor::Nvidia, 32, None)];
        assert_eq!(compare(&promised, &two, true).unwrap().0, CheckOutcome::Passed);
        assert_eq!(compare(&[], &[], true), None, "nothing was promised");
    }

    #[test]
    fn an_offer_without_a_count_means_at_least_one() {
        let promised = [offer("AMD Instinct MI100", None)];
        assert_eq!(compare(&promised, &[gpu(Vendor::Amd, 1, None)], true).unwrap().0, CheckOutcome::Passed);
        let (outcome, saw) = compare(&promised, &[], true).unwrap();
        assert_eq!((outcome, saw.as_str()), (CheckOutcome::Failed, "promised ? x AMD Instinct MI100, found none"));
    }

    #[test]
    fn other_gpus_than_promised_are_reported() {
        let amd = [gpu(Vendor::Amd, 1, None), gpu(Vendor::Amd, 2, None)];
        assert_eq!(compare(&[offer("NVIDIA A100", 2)], &amd, true).unwrap().0, CheckOutcome::Failed, "another vendor");
        // Vendors' tools and sites spell one product in many ways: a different name is noted, but is not a failure.
        let h100 = [gpu(Vendor::Nvidia, 1, Some("NVIDIA H100 80GB HBM3"))];
        assert_eq!(compare(&[offer("NVIDIA A100", 1)], &h100, true).unwrap().0, CheckOutcome::Noted);
        for (sold, reported) in [
            ("A10 (24 GB PCIe)", "NVIDIA A10"),
            ("NVIDIA Tesla P100 PCIe 16GB", "Tesla P100-PCIE-16GB"),
            ("NVIDIA H100 SXM5 94GB", "NVIDIA H100"),
            ("Arcturus GL-XL [Instinct MI100]", "AMD Instinct MI100"),
            ("A100", "Stand-in GPU"),
        ] {
            let vendor = vendor_of(reported).unwrap_or(Vendor::Nvidia);
            let found = [gpu(vendor, 1, Some(reported))];
            assert_eq!(compare(&[offer(sold, 1)], &found, true).unwrap().0, CheckOutcome::Passed, "{sold} {reported}");
        }
    }
}
