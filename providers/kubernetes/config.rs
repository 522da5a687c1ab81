//! The settings, read strictly.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::labels;
use crate::provider::{FieldError, settings};
use crate::util::duration::SpecDuration;

/// The name of the group in which the settings of the head's pod are.
pub(super) const HEAD: &str = "head";

/// How a service is reached from outside of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub(super) enum ServiceType {
    /// It is not: only pods of the cluster reach it.
    #[default]
    ClusterIP,
    /// By a port of every node.
    NodePort,
    /// By an address of its own.
    LoadBalancer,
}

impl ServiceType {
    /// As Kubernetes writes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ClusterIP => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// What is mounted into every pod: exactly one of its sources.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["path", "empty", "read_only"]))]
pub(super) struct Mount {
    /// Where it is in the pods, absolute.
    pub(super) path: String,
    /// An existing claim of storage (PersistentVolumeClaim).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("asks" = {"class": "privilege", "says": "the storage claim {}, in every pod"}))]
    pub(super) claim: Option<String>,
    /// An existing ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("asks" = {"class": "privilege", "says": "the ConfigMap {}, in every pod"}))]
    pub(super) config_map: Option<String>,
    /// An existing Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("asks" = {"class": "privilege", "says": "the Secret {}, in every pod"}))]
    pub(super) secret: Option<String>,
    /// An empty folder of each pod, of at most this size: `10Gi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) empty: Option<String>,
    /// Nothing is written there.
    pub(super) read_only: bool,
}

/// The settings of pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["image", "cpu", "memory", "gpu_resource", "node_selector", "tolerations", "affinity", "runtime_class"]))]
pub(super) struct PodSettings {
    /// The image; `rayproject/ray` of the spec's version when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image: Option<String>,
    /// The processors of a pod, as Kubernetes writes them: `500m`, `4`; those of Ray when absent, but at least one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu: Option<String>,
    /// The memory of a pod: `4Gi`; that of Ray when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<String>,
    /// The resource that counts as a GPU: `nvidia.com/gpu`, `amd.com/gpu`, `nvidia.com/mig-1g.10gb`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpu_resource: Option<String>,
    /// The labels that the machine must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) node_selector: BTreeMap<String, String>,
    /// The taints of machines that it tolerates, as in a pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tolerations: Vec<Map<String, Value>>,
    /// Where it runs relative to others, as in a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) affinity: Option<Map<String, Value>>,
    /// Its runtime class: `nvidia` where GPUs are reached by it alone, as on K3s and RKE2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runtime_class: Option<String>,
    /// Its priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("asks" = {"class": "privilege", "says": "the priority class {}, before which other pods may have to go"}))]
    pub(super) priority_class: Option<String>,
    /// Its service account. Workers get no token of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("asks" = {"class": "privilege", "says": "the service account {}"}))]
    pub(super) service_account: Option<String>,
    /// The secrets with which its image is pulled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("asks" = {"class": "privilege", "says": "the Secrets {}, to pull images"}))]
    pub(super) image_pull_secrets: Vec<String>,
    /// Secrets of the namespace, whose keys are environment variables of all that runs in the pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("asks" = {"class": "privilege", "says": "the Secrets {}, as variables of every program in the pods"}))]
    pub(super) secrets: Vec<String>,
    /// More labels of the pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("asks" = {"class": "privilege", "says": "the labels {}, by which services and policies of others may select the pods"}))]
    pub(super) labels: BTreeMap<String, String>,
    /// Annotations of the pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("asks" = {"class": "privilege", "says": "the annotations {}, which programs of the cluster's administrators may obey"}))]
    pub(super) annotations: BTreeMap<String, String>,
    /// What is mounted into the pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) mounts: Vec<Mount>,
}

impl PodSettings {
    /// These settings, and where they say nothing those of `all`.
    fn over(&self, all: &Self) -> Self {
        let mut node_selector = all.node_selector.clone();
        node_selector.extend(self.node_selector.clone());
        let mut labels = all.labels.clone();
        labels.extend(self.labels.clone());
        let mut annotations = all.annotations.clone();
        annotations.extend(self.annotations.clone());
        let either = |own: &Option<String>, other: &Option<String>| own.clone().or_else(|| other.clone());
        let longer = |own: &[Map<String, Value>], other: &[Map<String, Value>]| [other, own].concat();
        Self {
            image: either(&self.image, &all.image),
            cpu: either(&self.cpu, &all.cpu),
            memory: either(&self.memory, &all.memory),
            gpu_resource: either(&self.gpu_resource, &all.gpu_resource),
            node_selector,
            tolerations: longer(&self.tolerations, &all.tolerations),
            affinity: self.affinity.clone().or_else(|| all.affinity.clone()),
            runtime_class: either(&self.runtime_class, &all.runtime_class),
            priority_class: either(&self.priority_class, &all.priority_class),
            service_account: either(&self.service_account, &all.service_account),
            image_pull_secrets: [all.image_pull_secrets.as_slice(), &self.image_pull_secrets].concat(),
            secrets: [all.secrets.as_slice(), &self.secrets].concat(),
            labels,
            annotations,
            mounts: [all.mounts.as_slice(), &self.mounts].concat(),
        }
    }
}

/// The Prometheus of the Kubernetes cluster, for those who may not look for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["labels", "namespace"]))]
pub(super) struct PrometheusSettings {
    /// The labels by which it selects PodMonitors: `release: prometheus`.
    pub(super) labels: BTreeMap<String, String>,
    /// The namespace that it runs in.
    pub(super) namespace: String,
}

/// The settings under `provider:` beside `name`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["context", "namespace", "idle_timeout", "wait"]))]
pub(super) struct Settings {
    /// The context of your kubeconfig; its current one when absent.
    pub(super) context: Option<String>,
    /// The namespace; that of the context when absent.
    pub(super) namespace: Option<String>,
    /// The kubeconfig; `$KUBECONFIG` or `~/.kube/config` when absent, and in a pod its service account.
    #[schemars(extend("asks" = {"rule": "login"}))]
    pub(super) kubeconfig: Option<PathBuf>,
    /// How the head's service is reached from outside; default: `ClusterIP`, not at all.
    #[schemars(extend("asks" = {"class": "privilege", "says": "the head's service is open to others: {}", "unless": ["ClusterIP"]}))]
    pub(super) service_type: ServiceType,
    /// Only pods of the cluster connect to its pods, where the network enforces policies; default: `true`.
    #[schemars(extend("asks" = {"class": "privilege", "says": "other pods reach the cluster's (no NetworkPolicy)", "unless": [true]}))]
    pub(super) network_policy: Option<bool>,
    /// How long a worker that Ray's autoscaler added may be idle before it goes; default: 1m.
    pub(super) idle_timeout: Option<SpecDuration>,
    /// How long `up` waits until all pods run; default: 15m. They stay after that.
    pub(super) wait: Option<SpecDuration>,
    /// The Prometheus for `services: {prometheus: existing}`; looked for when absent.
    pub(super) prometheus: Option<PrometheusSettings>,
    /// More labels of the RayCluster: `kueue.x-k8s.io/queue-name: team-a`.
    #[schemars(extend("asks" = {"class": "privilege", "says": "the labels {} of the RayCluster, which programs of the cluster's administrators may obey"}))]
    pub(super) labels: BTreeMap<String, String>,
    /// The settings of all pods.
    pub(super) pods: PodSettings,
    /// The settings of the head's pod, over those in `pods`.
    pub(super) head: PodSettings,
    /// The settings of the pods of a group of workers, by its name, over those in `pods`.
    pub(super) groups: BTreeMap<String, PodSettings>,
}

impl Settings {
    /// The settings of the pods of this group, or the head's.
    pub(super) fn pods_of(&self, group: &str) -> PodSettings {
        match group {
            HEAD => self.head.over(&self.pods),
            group => self.groups.get(group).cloned().unwrap_or_default().over(&self.pods),
        }
    }

    /// Whether a NetworkPolicy is made.
    pub(super) fn has_policy(&self) -> bool {
        self.network_policy.unwrap_or(true)
    }
}

/// An entry of `hosts:`: a platform has none.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HostSettings {}

/// Reads the settings.
pub(super) fn read(value: &Value) -> Result<Settings, Vec<FieldError>> {
    let read: Settings = settings::read(value, "")?;
    let errors = wrong(&read);
    if errors.is_empty() { Ok(read) } else { Err(errors) }
}

/// Finds what is wrong with settings and host entries.
pub(super) fn check(value: &Value, hosts: &[Value]) -> Vec<FieldError> {
    let mut errors = read(value).err().unwrap_or_default();
    for (index, host) in hosts.iter().enumerate() {
        errors.extend(settings::read::<HostSettings>(host, &format!("hosts[{index}]")).err().unwrap_or_default());
    }
    errors
}

fn wrong(read: &Settings) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut refuse = |path: String, message: String| errors.push(FieldError { path, message, known: Vec::new() });
    let names =
        [("namespace", read.namespace.as_deref()), ("context", read.context.as_deref().filter(|name| name.is_empty()))];
    for (path, name) in names {
        if let Some(name) = name.filter(|name| !is_label(name)) {
            refuse(path.to_owned(), format!("`{name}` is not a name: a-z, 0-9 and hyphens, at most 63"));
        }
    }
    if let Some(prometheus) = read.prometheus.as_ref().filter(|prometheus| !is_label(&prometheus.namespace)) {
        let message = format!("`{}` is not a namespace: a-z, 0-9 and hyphens, at most 63", prometheus.namespace);
        refuse("prometheus.namespace".to_owned(), message);
    }
    errors.extend(labels::faults("labels", &read.labels, labels::Of::Object));
    let mut refuse = |path: String, message: String| errors.push(FieldError { path, message, known: Vec::new() });
    let pods = [("pods".to_owned(), &read.pods), (HEAD.to_owned(), &read.head)];
    let groups = read.groups.iter().map(|(name, pods)| (settings::join("groups", name), pods));
    for (path, pods) in pods.into_iter().chain(groups) {
        for (key, quantity) in [("cpu", &pods.cpu), ("memory", &pods.memory)] {
            if let Some(quantity) = quantity.as_ref().filter(|quantity| !is_quantity(quantity)) {
                refuse(format!("{path}.{key}"), format!("`{quantity}` is not an amount: `500m`, `4`, `8Gi`"));
            }
        }
        if let Some(image) = pods.image.as_ref().filter(|image| image.is_empty() || image.contains(char::is_whitespace))
        {
            refuse(format!("{path}.image"), format!("`{image}` is not an image"));
        }
        if let Some(name) = pods.gpu_resource.as_ref().filter(|name| !name.contains('/')) {
            refuse(format!("{path}.gpu_resource"), format!("`{name}` is not a resource: `nvidia.com/gpu`"));
        }
        for (key, entries, of) in [
            ("labels", &pods.labels, labels::Of::Object),
            ("annotations", &pods.annotations, labels::Of::Annotations),
            ("node_selector", &pods.node_selector, labels::Of::Machine),
        ] {
            labels::faults(&format!("{path}.{key}"), entries, of)
                .into_iter()
                .for_each(|fault| refuse(fault.path, fault.message));
        }
        for (index, mount) in pods.mounts.iter().enumerate() {
            let sources = [&mount.claim, &mount.config_map, &mount.secret, &mount.empty];
            if !mount.path.starts_with('/') || mount.path.split('/').any(|part| part == "..") {
                refuse(format!("{path}.mounts[{index}].path"), format!("`{}` is not an absolute path", mount.path));
            }
            if sources.iter().filter(|source| source.is_some()).count() != 1 {
                let message = "needs exactly one of `claim`, `config_map`, `secret` and `empty`".to_owned();
                refuse(format!("{path}.mounts[{index}]"), message);
            }
        }
    }
    errors
}

/// Whether it is the name of a namespace: a DNS label.
fn is_label(text: &str) -> bool {
    let is_inner = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    (1..=63).contains(&text.len()) && text.chars().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Whether Kubernetes would read it as an amount.
fn is_quantity(text: &str) -> bool {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let known = ["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"];
    text[..digits].parse::<f64>().is_ok_and(|number| number > 0.0) && known.contains(&&text[digits..])
}
