//! What runs beside Ray, and with which images: the keys that only the runtime `docker` has.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Spec;

/// `true` for the defaults, `false` to leave it out, or settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "{T}OrSwitch")]
pub enum Switchable<T> {
    /// With its defaults, or not at all.
    Switch(bool),
    /// With settings.
    Settings(T),
}

impl<T: Default + Clone> Switchable<T> {
    /// The settings, unless it is left out.
    pub fn settings(&self) -> Option<T> {
        match self {
            Self::Switch(true) => Some(T::default()),
            Self::Switch(false) => None,
            Self::Settings(settings) => Some(settings.clone()),
        }
    }
}

impl<T> Default for Switchable<T> {
    fn default() -> Self {
        Self::Switch(true)
    }
}

/// What runs beside Ray on the head's host; all of it unless it is left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServicesSpec {
    /// The object store, and its buckets.
    pub object_store: Switchable<ObjectStoreSpec>,
    /// Prometheus, which collects the metrics of Ray and of the hosts.
    pub prometheus: Switchable<PrometheusSpec>,
    /// Grafana with Ray's dashboards; when absent it is there where Prometheus is.
    pub grafana: Option<Switchable<GrafanaSpec>>,
    /// Jupyter, connected to the cluster.
    pub jupyter: Switchable<JupyterSpec>,
}

/// The kinds of object store that gpucl can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// MinIO, or what takes its command line and environment.
    #[default]
    Minio,
}

/// The object store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ObjectStoreSpec {
    /// What is started.
    pub kind: StoreKind,
    /// Its image, in place of the default one.
    pub image: Option<String>,
    /// The buckets that are made at start, and proven; with `external`, those that are proven.
    #[schemars(length(max = 32))]
    pub buckets: Vec<String>,
    /// A store that exists and outlives the cluster, in place of one of our own.
    pub external: Option<ExternalStore>,
    /// Linux capabilities that its container keeps, such as `CHOWN`; by default none.
    pub capabilities: Vec<String>,
}

impl Default for ObjectStoreSpec {
    fn default() -> Self {
        Self {
            kind: StoreKind::Minio,
            image: None,
            buckets: vec!["ray".to_owned()],
            external: None,
            capabilities: Vec::new(),
        }
    }
}

/// A store that exists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExternalStore {
    /// Its address: `https://s3.example.org`.
    pub endpoint: String,
    /// Its region.
    #[serde(default = "usual_region")]
    pub region: String,
    /// A file on your machine in the form of `~/.aws/credentials`, by its path from the spec's folder.
    pub credentials_file: String,
    /// The profile in that file whose keys are sent to the hosts; no other leaves your machine.
    #[serde(default = "usual_profile")]
    pub profile: String,
}

fn usual_profile() -> String {
    "default".to_owned()
}

fn usual_region() -> String {
    "us-east-1".to_owned()
}

/// Prometheus.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PrometheusSpec {
    /// How long it keeps what it collects, such as `15d`.
    pub retention: String,
    /// Linux capabilities that its container keeps, such as `CHOWN`; by default none.
    pub capabilities: Vec<String>,
}

impl Default for PrometheusSpec {
    fn default() -> Self {
        Self { retention: "15d".to_owned(), capabilities: Vec::new() }
    }
}

/// Jupyter.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JupyterSpec {
    /// A folder of the head's host to work in, by its whole path; a volume of the cluster's own when absent.
    pub workspace: Option<String>,
    /// Linux capabilities that its container keeps, such as `CHOWN`; by default none.
    pub capabilities: Vec<String>,
}

/// Grafana.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GrafanaSpec {
    /// Linux capabilities that its container keeps, such as `CHOWN`; by default none.
    pub capabilities: Vec<String>,
}

/// How images that nobody publishes are built on the hosts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BuildSpec {
    /// The package index that pip takes, in place of its usual one. It can be read in the image: no credentials.
    pub pip_index_url: Option<String>,
}

/// A compose file of the user, delivered beside ours. In a spec it is a path; its text is read when the spec is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fragment {
    /// Its path, from the spec's folder.
    pub path: String,
    /// What is in it.
    pub text: String,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum FragmentForm {
    Path(String),
    Whole { path: String, text: String },
}

impl Serialize for Fragment {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        FragmentForm::Whole { path: self.path.clone(), text: self.text.clone() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Fragment {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match FragmentForm::deserialize(deserializer)? {
            FragmentForm::Path(path) => Self { path, text: String::new() },
            FragmentForm::Whole { path, text } => Self { path, text },
        })
    }
}

impl JsonSchema for Fragment {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Fragment".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "examples": ["extra.yaml"] })
    }
}

/// The images that a spec may choose, by the names that the data file has for them.
pub const IMAGE_NAMES: &[&str] =
    &["ray", "ray_gpu", "ray_rocm", "ray_rocm_base", "minio", "prometheus", "node_exporter", "grafana", "jupyter"];

/// The capabilities that Linux has, as compose names them.
pub(super) const CAPABILITIES: &[&str] = &[
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

/// The choice of images: a name of ours, and the image in its place.
pub type Images = BTreeMap<String, String>;

impl Spec {
    /// What runs beside Ray: the defaults where the spec says nothing.
    pub fn services(&self) -> ServicesSpec {
        self.services.clone().unwrap_or_default()
    }

    /// The store that exists, where the spec names one.
    pub fn external_store(&self) -> Option<ExternalStore> {
        self.services().object_store.settings().and_then(|store| store.external)
    }
}

impl ServicesSpec {
    /// What is stored outlives the hosts.
    pub fn has_external_store(&self) -> bool {
        matches!(&self.object_store, Switchable::Settings(store) if store.external.is_some())
    }

    /// Whether there is a Grafana.
    pub fn has_grafana(&self) -> bool {
        self.prometheus.settings().is_some() && self.grafana.as_ref().is_none_or(|grafana| grafana.settings().is_some())
    }

    /// Grafana's settings: the defaults where the spec says nothing.
    pub fn grafana_settings(&self) -> GrafanaSpec {
        self.grafana.as_ref().and_then(Switchable::settings).unwrap_or_default()
    }
}

impl ServicesSpec {
    /// The settings of a store that exists, to fill in.
    pub(super) fn external_mut(&mut self) -> Option<&mut ExternalStore> {
        match &mut self.object_store {
            Switchable::Settings(store) => store.external.as_mut(),
            Switchable::Switch(_) => None,
        }
    }
}
