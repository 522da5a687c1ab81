//! What machines of a Kubernetes cluster have, and what is free of it.

use std::collections::BTreeMap;

use kube::api::ListParams;
use serde_json::Value;

use super::Kubernetes;
use super::client::{KubeContext, call, values};
use super::pods::tolerating;
use crate::error::Result;
use crate::provider::{GpuOffer, Offer};

/// The labels by which clouds name the pool of a machine.
const POOLS: [&str; 4] =
    ["cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "agentpool", "karpenter.sh/nodepool"];
/// The labels with the product of a machine's GPUs.
const PRODUCTS: [&str; 2] = ["nvidia.com/gpu.product", "amd.com/gpu.product-name"];

impl Kubernetes {
    /// One offer for each machine, with its taints. Without the right to list machines there are none, which is said.
    pub(super) async fn machines(&self) -> Result<Vec<Offer>> {
        let place = self.place().await?;
        let nodes = place.all_core_objects("Node");
        let all = ListParams::default();
        let listed = match nodes.list(&all).await {
            Err(kube::Error::Api(answer)) if answer.code == 403 => {
                self.context.events.warn(format!(
                    "what machines {} has is not known: {} may not list nodes",
                    place.context,
                    if place.user.is_empty() { "this account" } else { &place.user }
                ));
                return Ok(Vec::new());
            }
            _ => call("list the machines", || nodes.list(&all)).await?,
        };
        let nodes = values(&listed)?;
        let used = used(place).await;
        Ok(nodes.iter().map(|node| offer(node, used.as_ref(), &place.context)).collect())
    }
}

impl Kubernetes {
    /// What to paste so that pods tolerate the taints of machines, those of machines with GPUs first; nothing where
    /// machines may not be listed.
    pub(super) async fn taints(&self, place: &KubeContext) -> Vec<String> {
        let nodes = place.all_core_objects("Node");
        let listed = nodes.list(&ListParams::default()).await;
        let mut nodes = listed.ok().and_then(|listed| values(&listed).ok()).unwrap_or_default();
        let gpus = |node: &Value| {
            node["status"]["allocatable"].as_object().is_some_and(|all| all.keys().any(|name| is_gpu(name)))
        };
        nodes.sort_by_key(|node| !gpus(node));
        let all = nodes.iter().flat_map(|node| node["spec"]["taints"].as_array().into_iter().flatten());
        let keeps_out = all.filter(|taint| matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute")));
        // Kubernetes' own say that a machine is not usable: nobody should tolerate them.
        let by_people =
            keeps_out.filter(|taint| !taint["key"].as_str().is_some_and(|key| key.starts_with("node.kubernetes.io/")));
        let of = |taint: &Value, field: &str| taint[field].as_str().unwrap_or_default().to_owned();
        by_people.map(|taint| tolerating(&of(taint, "key"), &of(taint, "value"))).collect()
    }
}

/// The GPUs that pods have, by machine and resource; `None` where pods of others may not be listed.
async fn used(place: &KubeContext) -> Option<BTreeMap<(String, String), u64>> {
    let list = place.all_core_objects("Pod").list(&ListParams::default()).await.ok()?;
    let mut used = BTreeMap::new();
    for pod in values(&list).ok()? {
        if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
            continue;
        }
        let Some(machine) = pod["spec"]["nodeName"].as_str() else { continue };
        for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
            for (resource, amount) in container["resources"]["limits"].as_object().into_iter().flatten() {
                if is_gpu(resource) {
                    *used.entry((machine.to_owned(), resource.clone())).or_default() += whole(amount);
                }
            }
        }
    }
    Some(used)
}

/// A machine as an offer, with what of it is free if that is known.
fn offer(node: &Value, used: Option<&BTreeMap<(String, String), u64>>, place: &str) -> Offer {
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    let label =
        |names: &[&str]| names.iter().find_map(|label| node["metadata"]["labels"][*label].as_str()).map(str::to_owned);
    let allocatable = &node["status"]["allocatable"];
    let mut gpus = Vec::new();
    let mut all_taken = Vec::new();
    for (resource, amount) in allocatable.as_object().into_iter().flatten().filter(|(name, _)| is_gpu(name)) {
        let (all, model) = (whole(amount), label(&PRODUCTS).unwrap_or_else(|| resource.clone()));
        // What others have is unknown without the right to list their pods.
        let taken = used.and_then(|used| used.get(&(name.to_owned(), resource.clone()))).copied().unwrap_or_default();
        match all.saturating_sub(taken) {
            _ if all == 0 => {}
            0 => {
                gpus.push(GpuOffer { model, count: u32::try_from(all).ok() });
                all_taken.push(resource.as_str());
            }
            free => gpus.push(GpuOffer { model, count: u32::try_from(free).ok() }),
        }
    }
    let taints: Vec<String> = node["spec"]["taints"].as_array().into_iter().flatten().map(taint).collect();
    let place = match taints.is_empty() {
        true => place.to_owned(),
        false => format!("{place}, taints {}", taints.join(", ")),
    };
    let free = match (node["spec"]["unschedulable"] == true, all_taken.as_slice()) {
        (true, _) => "cordoned".to_owned(),
        (false, []) => "now".to_owned(),
        (false, taken) => format!("{} in use", taken.join(", ")),
    };
    Offer {
        name: label(&POOLS).map_or_else(|| name.to_owned(), |pool| format!("{pool}/{name}")),
        place,
        cpus: allocatable["cpu"].as_str().map(cpus).unwrap_or_default(),
        memory: allocatable["memory"].as_str().map(bytes).unwrap_or_default(),
        gpus,
        price_per_hour: None,
        free,
    }
}

/// A taint, as `kubectl` writes it: `nodepool=gpu:NoSchedule`.
fn taint(taint: &Value) -> String {
    let of = |field: &str| taint[field].as_str().unwrap_or_default();
    let value = if of("value").is_empty() { String::new() } else { format!("={}", of("value")) };
    format!("{}{value}:{}", of("key"), of("effect"))
}

/// Whether a resource counts GPUs, or parts of them.
fn is_gpu(resource: &str) -> bool {
    resource.ends_with("/gpu") || resource.starts_with("nvidia.com/mig-") || resource.starts_with("gpu.intel.com/")
}

fn whole(amount: &Value) -> u64 {
    amount.as_str().and_then(|text| text.parse().ok()).or_else(|| amount.as_u64()).unwrap_or_default()
}

/// Processors: `3920m` are 3.
fn cpus(text: &str) -> u32 {
    match text.strip_suffix('m') {
        Some(milli) => milli.parse::<u32>().unwrap_or_default() / 1000,
        None => text.parse().unwrap_or_default(),
    }
}

/// Memory: `24576Ki`.
fn bytes(text: &str) -> u64 {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let factor = match &text[digits..] {
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => 1,
    };
    text[..digits].parse::<u64>().unwrap_or_default().saturating_mul(factor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_is_listed_with_its_free_gpus_and_its_taints() {
        let node = json!({
            "metadata": { "name": "n1", "labels": { "cloud.google.com/gke-nodepool": "gpus", "nvidia.com/gpu.product": "NVIDIA-L4" } },
            "spec": { "taints": [{ "key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule" }] },
            "status": { "allocatable": { "cpu": "3920m", "memory": "12Gi", "nvidia.com/gpu": "2" } },
        });
        let used = BTreeMap::from([(("n1".to_owned(), "nvidia.com/gpu".to_owned()), 1)]);
        let offer = super::offer(&node, Some(&used), "lab");
        assert_eq!((offer.name.as_str(), offer.cpus, offer.memory), ("gpus/n1", 3, 12 << 30));
        assert_eq!(offer.gpus, [GpuOffer { model: "NVIDIA-L4".to_owned(), count: Some(1) }], "one is in use");
        assert_eq!(offer.free, "now");
        assert_eq!(offer.place, "lab, taints nvidia.com/gpu=present:NoSchedule");
        let used = BTreeMap::from([(("n1".to_owned(), "nvidia.com/gpu".to_owned()), 2)]);
        assert_eq!(super::offer(&node, Some(&used), "lab").free, "nvidia.com/gpu in use");
        assert_eq!(super::offer(&node, None, "lab").gpus[0].count, Some(2));
    }
}
