//! The services beside Ray and their images. Of these keys the runtime `native` has the object store and MLflow only.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `true` for the defaults, `false` to disable it, or settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "{T}OrSwitch")]
pub enum Switchable<T> {
    /// Enabled with the defaults, or disabled.
    Switch(bool),
    /// Enabled with these settings.
    Settings(T),
}

impl<T: Default + Clone> Switchable<T> {
    /// The settings; `None` if disabled.
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

/// The services beside Ray on the head's host. With the runtime `docker` all but MLflow are enabled by default; the runtime
/// `native` has the object store and MLflow only, and only when they are enabled here.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["mlflow"]))]
pub struct ServicesSpec {
    /// The object store and its buckets.
    pub object_store: Option<Switchable<ObjectStoreSpec>>,
    /// Prometheus, which collects the metrics of Ray and the hosts; `existing` for the one of a Kubernetes cluster.
    pub prometheus: Option<PrometheusChoice>,
    /// Grafana with Ray's dashboards; enabled with Prometheus when absent.
    pub grafana: Option<Switchable<GrafanaSpec>>,
    /// Jupyter, connected to the cluster.
    pub jupyter: Option<Switchable<JupyterSpec>>,
    /// MLflow, which records the runs and models of jobs; absent unless it is enabled here.
    pub mlflow: Option<Switchable<MlflowSpec>>,
}

/// The services of a cluster, with the runtime's defaults where the spec has none.
#[derive(Debug, Clone, PartialEq)]
pub struct Services {
    /// The object store and its buckets.
    pub object_store: Switchable<ObjectStoreSpec>,
    /// Prometheus.
    pub prometheus: Switchable<PrometheusSpec>,
    /// Grafana; enabled with Prometheus when absent.
    pub grafana: Option<Switchable<GrafanaSpec>>,
    /// Jupyter.
    pub jupyter: Switchable<JupyterSpec>,
    /// MLflow.
    pub mlflow: Switchable<MlflowSpec>,
}

/// The version of MLflow: of the server, and of the client in the nodes' environment.
pub const MLFLOW_VERSION: &str = "3.17.2";

/// MLflow.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MlflowSpec {
    /// A server that exists and outlives the cluster, instead of one started by gpucl.
    #[schemars(extend("asks" = {"rule": "tracking"}))]
    pub external: Option<ExternalMlflow>,
}

/// An MLflow server that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("asks_nothing" = ["uri", "credentials_file"]))]
pub struct ExternalMlflow {
    /// The URL of the server, as hosts reach it: `https://mlflow.example.org`.
    pub uri: String,
    /// A file on your machine in the format of `~/.mlflow/credentials`, by its path relative to the spec's folder; jobs get
    /// the login in it. A server without it asks for none.
    #[serde(default)]
    pub credentials_file: Option<String>,
}

/// The kinds of object store that gpucl can start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreKind {
    /// MinIO, or a server with the same command line and environment.
    #[default]
    Minio,
}

/// The object store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["kind", "image", "buckets"]))]
pub struct ObjectStoreSpec {
    /// The kind of server.
    pub kind: StoreKind,
    /// An image that replaces the default one; with the runtime `docker`.
    pub image: Option<String>,
    /// The buckets to create at start and check; with `external` they are only checked.
    #[schemars(length(max = 32))]
    pub buckets: Vec<String>,
    /// An existing store, which outlives the cluster, instead of one started by gpucl.
    #[schemars(extend("asks" = {"rule": "store"}))]
    pub external: Option<ExternalStore>,
    /// Linux capabilities that its container keeps, such as `CHOWN`; none by default. With the runtime `docker`.
    #[schemars(extend("asks" = {"class": "privilege", "says": "the Linux capabilities {}, for the object store", "on": "outliving"}))]
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

/// An existing object store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("asks_nothing" = ["endpoint", "region", "credentials_file", "profile"]))]
pub struct ExternalStore {
    /// The URL of the store: `https://s3.example.org`.
    pub endpoint: String,
    /// The region of the store.
    #[serde(default = "usual_region")]
    pub region: String,
    /// A file on your machine in the format of `~/.aws/credentials`, by its path relative to the spec's folder.
    pub credentials_file: String,
    /// The profile in that file whose keys are sent to the hosts; no other profile leaves your machine.
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
#[schemars(extend("asks_nothing" = ["retention"]))]
pub struct PrometheusSpec {
    /// How long metrics are kept, such as `15d`.
    pub retention: String,
    /// Linux capabilities that its container keeps, such as `CHOWN`; none by default.
    #[schemars(extend("asks" = {"class": "privilege", "says": "the Linux capabilities {}, for Prometheus", "on": "outliving"}))]
    pub capabilities: Vec<String>,
}

impl Default for PrometheusSpec {
    fn default() -> Self {
        Self { retention: "15d".to_owned(), capabilities: Vec::new() }
    }
}

/// Which Prometheus collects a cluster's metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PrometheusChoice {
    /// One of the cluster's own.
    Own(Switchable<PrometheusSpec>),
    /// One that is there, of the platform.
    There(There),
}

/// The word for a service that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum There {
    /// One that is there, of the platform.
    Existing,
}

impl PrometheusChoice {
    /// The settings of the cluster's own; `None` if it has none.
    pub fn settings(&self) -> Option<PrometheusSpec> {
        match self {
            Self::Own(own) => own.settings(),
            Self::There(_) => None,
        }
    }
}

/// Jupyter.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JupyterSpec {
    /// The absolute path of a folder on the head's host to work in; a volume of the cluster when absent.
    #[schemars(extend("asks" = {"rule": "host_folder"}))]
    pub workspace: Option<String>,
    /// Linux capabilities that its container keeps, such as `CHOWN`; none by default.
    #[schemars(extend("asks" = {"class": "privilege", "says": "the Linux capabilities {}, for Jupyter", "on": "outliving"}))]
    pub capabilities: Vec<String>,
}

/// Grafana.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GrafanaSpec {
    /// Linux capabilities that its container keeps, such as `CHOWN`; none by default.
    #[schemars(extend("asks" = {"class": "privilege", "says": "the Linux capabilities {}, for Grafana", "on": "outliving"}))]
    pub capabilities: Vec<String>,
}

/// How unpublished images are built on the hosts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["pip_index_url"]))]
pub struct BuildSpec {
    /// The package index for pip, instead of its default. It is readable in the image, so no credentials here.
    pub pip_index_url: Option<String>,
}

/// A file of the user whose text is sent to hosts, such as a compose file. In a spec it is a path; its text is read with
/// the spec.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fragment {
    /// The path, relative to the spec's folder.
    pub path: String,
    /// The file's content.
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
        schemars::json_schema!({ "type": "string", "examples": ["extra.yaml", "requirements.txt"] })
    }
}

/// The images that a spec may replace, by their names in `templates/ray-compose/images.yaml`.
pub const IMAGE_NAMES: &[&str] = &[
    "ray",
    "ray_gpu",
    "ray_rocm",
    "ray_rocm_base",
    "minio",
    "prometheus",
    "node_exporter",
    "grafana",
    "jupyter",
    "mlflow",
];

/// Replacement images, by name.
pub type Images = BTreeMap<String, String>;

impl ServicesSpec {
    /// Whether the store is external, so that its data outlives the hosts.
    pub fn has_external_store(&self) -> bool {
        matches!(&self.object_store, Some(Switchable::Settings(store)) if store.external.is_some())
    }
}

impl Services {
    /// Whether Grafana is enabled.
    pub fn has_grafana(&self) -> bool {
        self.prometheus.settings().is_some() && self.grafana.as_ref().is_none_or(|grafana| grafana.settings().is_some())
    }

    /// Grafana's settings, with defaults where the spec has none.
    pub fn grafana_settings(&self) -> GrafanaSpec {
        self.grafana.as_ref().and_then(Switchable::settings).unwrap_or_default()
    }
}

impl ServicesSpec {
    /// The mutable paths of files with credentials that are sent to hosts.
    pub(in crate::spec) fn credentials_files(&mut self) -> Vec<&mut String> {
        let Self { object_store, mlflow, .. } = self;
        let store = match object_store {
            Some(Switchable::Settings(store)) => store.external.as_mut().map(|store| &mut store.credentials_file),
            Some(Switchable::Switch(_)) | None => None,
        };
        store.into_iter().chain(login_of(mlflow)).collect()
    }

    /// The mutable path of the file with the login of the external MLflow server.
    pub(in crate::spec) fn mlflow_credentials_mut(&mut self) -> Option<&mut String> {
        login_of(&mut self.mlflow)
    }

    /// Mutable settings of the external store.
    pub(in crate::spec) fn external_mut(&mut self) -> Option<&mut ExternalStore> {
        match &mut self.object_store {
            Some(Switchable::Settings(store)) => store.external.as_mut(),
            Some(Switchable::Switch(_)) | None => None,
        }
    }
}

fn login_of(mlflow: &mut Option<Switchable<MlflowSpec>>) -> Option<&mut String> {
    match mlflow {
        Some(Switchable::Settings(mlflow)) => mlflow.external.as_mut()?.credentials_file.as_mut(),
        Some(Switchable::Switch(_)) | None => None,
    }
}
