//! What a pod of a group is made of: the options of its `ray start`, environment, resources, placement and volumes. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::config::PodSettings;
use super::names::TOKEN_KEY;
use crate::provider::platform::{ClusterRequest, DATA, NodeGroup};
use crate::util::proxy::past_proxy;

/// The memory of a pod of which the spec says nothing.
const USUAL_MEMORY: u64 = 4 << 30;
/// The usual resource of GPUs.
const USUAL_GPU: &str = "nvidia.com/gpu";

/// The options of `ray start`, which KubeRay takes as texts.
pub(super) fn start_parameters(group: &NodeGroup, is_head: bool) -> BTreeMap<&'static str, String> {
    let mut start = BTreeMap::new();
    let cpus = group.cpus.unwrap_or(u32::from(!is_head));
    start.insert("num-cpus", cpus.to_string());
    if is_head {
        start.insert("dashboard-host", "0.0.0.0".to_owned());
        // Its memory is not for tasks where it runs none.
        if cpus == 0 {
            start.insert("memory", "0".to_owned());
        }
    }
    if let Some(bytes) = group.object_store_memory {
        start.insert("object-store-memory", bytes.to_string());
    }
    // The operator derives it from the pod's limits only where it can read `resources`, and not for every name of a GPU.
    if group.gpus > 0 {
        start.insert("num-gpus", group.gpus.to_string());
    }
    if !group.resources.is_empty() {
        // Ray's autoscaler takes whole numbers only (ray 2.60.0, `_get_custom_resources`), and not as `2.0`.
        let amount = |amount: f64| if amount.fract() == 0.0 { json!(amount as i64) } else { json!(amount) };
        let amounts: Map<String, Value> =
            group.resources.iter().map(|(name, of)| (name.clone(), amount(*of))).collect();
        // Three read it: a shell, as a word of its command line; the operator, which takes quotes away at both ends (KubeRay
        // 1.6.2, `getResourcesMap`); and Ray's autoscaler, which takes the first and the last letter away, and every backslash.
        start.insert("resources", format!("'{}'", Value::Object(amounts)));
    }
    start
}

/// Whether a name of a custom resource arrives as it is at all three that read it; see [`start_parameters`].
pub(super) fn is_plain(resource: &str) -> bool {
    !resource.contains(['\'', '"', '\\'])
}

/// The environment of a pod: the token comes from the Secret.
pub(super) fn environment(name: &str, cluster: &ClusterRequest) -> Vec<Value> {
    let mut own = cluster.environment.clone();
    past_proxy(&mut own, &[format!("{name}-head-svc"), ".svc".to_owned(), ".cluster.local".to_owned()]);
    let own = own.iter().map(|(name, value)| json!({ "name": name, "value": value }));
    // For the graphs of Ray's dashboard.
    let prometheus =
        cluster.prometheus.iter().map(|one| json!({ "name": "RAY_PROMETHEUS_HOST", "value": one.address }));
    let ours = [
        json!({ "name": "RAY_AUTH_MODE", "value": "token" }),
        json!({ "name": "RAY_AUTH_TOKEN", "valueFrom": { "secretKeyRef": { "name": name, "key": TOKEN_KEY } } }),
        json!({ "name": "RAY_USAGE_STATS_ENABLED", "value": "0" }),
        json!({ "name": "GPUCL_DATA", "value": DATA }),
    ];
    ours.into_iter().chain(prometheus).chain(own).collect()
}

/// What a pod reserves, and what it cannot exceed.
pub(super) fn resources(group: &NodeGroup, settings: &PodSettings) -> (Map<String, Value>, Map<String, Value>) {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    let memory = settings.memory.clone().unwrap_or_else(|| group.memory.unwrap_or(USUAL_MEMORY).to_string());
    requests.insert("memory".to_owned(), json!(memory));
    limits.insert("memory".to_owned(), json!(memory));
    match &settings.cpu {
        // Reserved by hand: more may be used while nobody else wants it.
        Some(cpu) => {
            requests.insert("cpu".to_owned(), json!(cpu));
        }
        None => {
            let cpu = json!(group.cpus.unwrap_or(1).max(1).to_string());
            requests.insert("cpu".to_owned(), cpu.clone());
            limits.insert("cpu".to_owned(), cpu);
        }
    }
    if group.gpus > 0 {
        let resource = settings.gpu_resource.clone().unwrap_or_else(|| USUAL_GPU.to_owned());
        for amounts in [&mut requests, &mut limits] {
            amounts.insert(resource.clone(), json!(group.gpus.to_string()));
        }
    }
    (requests, limits)
}

/// The keys of a pod's spec that say where it runs and as what.
pub(super) fn placement(settings: &PodSettings) -> Map<String, Value> {
    let mut placement = Map::new();
    let mut set = |key: &str, value: Value| placement.insert(key.to_owned(), value);
    if !settings.node_selector.is_empty() {
        set("nodeSelector", json!(settings.node_selector));
    }
    if !settings.tolerations.is_empty() {
        set("tolerations", json!(settings.tolerations));
    }
    if let Some(affinity) = &settings.affinity {
        set("affinity", json!(affinity));
    }
    if let Some(class) = &settings.runtime_class {
        set("runtimeClassName", json!(class));
    }
    if let Some(class) = &settings.priority_class {
        set("priorityClassName", json!(class));
    }
    if let Some(account) = &settings.service_account {
        set("serviceAccountName", json!(account));
    }
    if !settings.image_pull_secrets.is_empty() {
        let secrets: Vec<Value> = settings.image_pull_secrets.iter().map(|name| json!({ "name": name })).collect();
        set("imagePullSecrets", json!(secrets));
    }
    placement
}

/// The volumes of a pod, and where they are mounted.
pub(super) fn mounts(settings: &PodSettings) -> (Vec<Value>, Vec<Value>) {
    let mut volumes = Vec::new();
    let mut mounts = Vec::new();
    if !settings.mounts.iter().any(|mount| mount.path.trim_end_matches('/') == DATA) {
        volumes.push(json!({ "name": "data", "emptyDir": {} }));
        mounts.push(json!({ "name": "data", "mountPath": DATA }));
    }
    for (index, mount) in settings.mounts.iter().enumerate() {
        let name = format!("mount-{index}");
        let source = match (&mount.claim, &mount.config_map, &mount.secret, &mount.empty) {
            (Some(claim), ..) => json!({ "persistentVolumeClaim": { "claimName": claim } }),
            (_, Some(map), ..) => json!({ "configMap": { "name": map } }),
            (_, _, Some(secret), _) => json!({ "secret": { "secretName": secret } }),
            (.., size) => json!({ "emptyDir": { "sizeLimit": size } }),
        };
        let mut volume = source;
        volume["name"] = json!(name);
        volumes.push(volume);
        mounts.push(json!({ "name": name, "mountPath": mount.path, "readOnly": mount.read_only }));
    }
    (volumes, mounts)
}
