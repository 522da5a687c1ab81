//! The types of the spec: the content of a `cluster.yaml`.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::data::DataSpec;
use super::files::FileSpec;
use super::limits::{Amount, Deadline};
use super::mounts::MountSpec;
use super::outputs::OutputPath;
use super::services::{BuildSpec, Fragment, Images, ServicesSpec};
use super::setup::SetupSpec;
use super::workers::Workers;
use crate::name::ClusterName;
use crate::provider::Runtime;
use crate::util::duration::SpecDuration;

/// The default Ray version.
pub const DEFAULT_RAY_VERSION: &str = "2.60.0";

/// A cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("asks_nothing" = ["name", "provider", "hosts", "runtime", "gpu", "oversubscribe", "images", "deadline", "max_cost", "ask_above", "outputs"]))]
pub struct Spec {
    /// The cluster's name, unique per owner.
    pub name: ClusterName,
    /// The provider of its hosts: a name, or a map with `name` and the provider's own settings.
    #[serde(default)]
    pub provider: ProviderChoice,
    /// How Ray runs on a host.
    #[serde(default)]
    pub runtime: Runtime,
    /// The hosts, each in the provider's own format; one host without settings when absent.
    #[serde(default = "one_host")]
    #[schemars(length(min = 1, max = 256))]
    pub hosts: Vec<serde_json::Value>,
    /// The Ray cluster.
    #[serde(default)]
    pub ray: RaySpec,
    /// Whether GPUs must be proven before the cluster is ready, or are only declared.
    #[serde(default)]
    pub gpu: GpuProof,
    /// Allows nodes to claim more CPUs or memory than their host has.
    #[serde(default)]
    pub oversubscribe: bool,
    /// Environment variables of every node, and so of every task.
    #[serde(default)]
    #[schemars(extend("asks" = {"rule": "environment"}))]
    pub environment: BTreeMap<String, String>,
    /// Folders and volumes in the containers of the head, the workers and Jupyter alike; only with the runtime
    /// `docker`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub mounts: Vec<MountSpec>,
    /// Data sets: folders in the data folder of every host, filled once before nodes start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub data: Vec<DataSpec>,
    /// What every node and Jupyter have beside Ray: packages and commands, installed once on each host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<SetupSpec>,
    /// Files of this machine or of git repositories in the data folder of every host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub files: Vec<FileSpec>,
    /// Settings of playbooks, such as mirrors and proxies, by the playbook's name.
    #[serde(default)]
    #[schemars(extend("asks" = {"class": "runs", "says": "programs of gpucl with settings of the spec: {}", "on": "here"}))]
    pub playbooks: BTreeMap<String, BTreeMap<String, String>>,
    /// The services beside Ray; only with the runtime `docker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<ServicesSpec>,
    /// Images that replace the pinned ones, by their names in `templates/ray-compose/images.yaml`; only with the
    /// runtime `docker`.
    #[serde(default)]
    pub images: Images,
    /// How unpublished images are built on the hosts; only with the runtime `docker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildSpec>,
    /// Your own compose files, by their paths relative to the spec's folder, merged over gpucl's on the head's host;
    /// only with the runtime `docker`.
    #[serde(default)]
    #[schemars(length(max = 16))]
    #[schemars(extend("asks" = {"rule": "compose"}))]
    pub compose: Vec<Fragment>,
    /// How long to wait for each phase.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// What `up` does while the provider lacks capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// When the cluster is taken down automatically: this long after its first host was acquired, or at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// The cost at which the cluster is taken down automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Amount>,
    /// `up` asks before it creates anything that costs more than this per hour, if that is less than the user's own limit
    /// (`--ask-above`, `5 USD` when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_above: Option<Amount>,
    /// What a job leaves in the cluster's data folder: files and folders that `gpucl run` fetches, by their paths from
    /// there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub outputs: Vec<OutputPath>,
}

fn one_host() -> Vec<serde_json::Value> {
    vec![serde_json::Value::Object(serde_json::Map::new())]
}

/// The provider and its own settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ProviderChoice {
    /// The name alone.
    Name(String),
    /// The name and the settings.
    Full {
        /// The provider's name.
        name: String,
        /// The provider's settings, in its own format.
        #[serde(flatten)]
        settings: serde_json::Map<String, serde_json::Value>,
    },
}

impl ProviderChoice {
    /// The provider's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) | Self::Full { name, .. } => name,
        }
    }

    /// The provider's settings.
    pub fn settings(&self) -> serde_json::Value {
        match self {
            Self::Name(_) => serde_json::Value::Object(serde_json::Map::new()),
            Self::Full { settings, .. } => serde_json::Value::Object(settings.clone()),
        }
    }
}

impl Default for ProviderChoice {
    fn default() -> Self {
        Self::Name("local".to_owned())
    }
}

/// The Ray cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["version"]))]
pub struct RaySpec {
    /// The Ray version, three numbers; at least 2.54.0, the first with the authentication that gpucl relies on.
    #[schemars(extend("pattern" = r"^[0-9]+\.[0-9]+\.[0-9]+$", "examples" = [DEFAULT_RAY_VERSION]))]
    pub version: String,
    /// The head node.
    pub head: HeadSpec,
    /// The worker nodes: one group of identical ones, or a list of groups.
    pub workers: Workers,
    /// Linux capabilities that the containers of head and workers keep, such as `SYS_PTRACE`; none by default. Only
    /// with the runtime `docker`.
    #[schemars(extend("asks" = {"class": "privilege", "says": "the Linux capabilities {}, for jobs", "on": "outliving"}))]
    pub capabilities: Vec<String>,
}

impl Default for RaySpec {
    fn default() -> Self {
        Self {
            version: DEFAULT_RAY_VERSION.to_owned(),
            head: HeadSpec::default(),
            workers: Workers::default(),
            capabilities: Vec::new(),
        }
    }
}

/// The head node. It runs no tasks unless it has CPUs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["cpus", "memory", "object_store_memory", "dashboard_port"]))]
pub struct HeadSpec {
    /// Logical CPUs for tasks.
    #[schemars(range(min = 0, max = 4096))]
    pub cpus: u32,
    /// Memory for tasks.
    pub memory: Option<Memory>,
    /// Shared memory for objects.
    pub object_store_memory: Option<Memory>,
    /// The port of the dashboard and the job API on the host's loopback; a free one when absent.
    #[schemars(range(min = 1024, max = 65535))]
    pub dashboard_port: Option<u16>,
}

/// Whether GPUs must be proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GpuProof {
    /// The checks must show that each worker owns its GPUs.
    #[default]
    Proven,
    /// They are logical: Ray counts them, and nothing checks them.
    Declared,
}

/// How long to wait for each phase, such as `90s`, `5m` or `1h 30m`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["prepare", "data", "start", "ready", "stop", "boot"]))]
pub struct Timeouts {
    /// For preparing a host: downloads and installation.
    pub prepare: SpecDuration,
    /// For filling a host's data sets and files; a download that was cut goes on at the next `up`.
    pub data: SpecDuration,
    /// For a node to start and respond.
    pub start: SpecDuration,
    /// For all checks to pass.
    pub ready: SpecDuration,
    /// For a node to exit before it is killed.
    pub stop: SpecDuration,
    /// For a new host to accept SSH, from when its provider says that it runs; the provider's usual time when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot: Option<SpecDuration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            prepare: SpecDuration(Duration::from_secs(20 * 60)),
            data: SpecDuration(Duration::from_secs(6 * 60 * 60)),
            start: SpecDuration(Duration::from_secs(2 * 60)),
            ready: SpecDuration(Duration::from_secs(3 * 60)),
            stop: SpecDuration(Duration::from_secs(10)),
            boot: None,
        }
    }
}

/// What `up` does while the provider lacks capacity.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("asks_nothing" = ["wait", "partial"]))]
pub struct Capacity {
    /// How long to wait for capacity; `up` fails at once when absent. `--wait-capacity` overrides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<SpecDuration>,
    /// What to do with the hosts already acquired while the others wait for capacity.
    pub partial: Partial,
}

/// What to do with the hosts already acquired while the others wait for capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Partial {
    /// Keep and prepare them, and wait for the rest.
    #[default]
    Keep,
    /// Release them, and wait for all hosts.
    GiveBack,
}

/// An amount of memory: a number of bytes, or text such as `512MiB` or `2GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct Memory(pub u64);

impl std::str::FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not an amount of memory: use a form such as `512MiB` or `2GiB`");
        let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
        let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
        let factor: u64 = match text[digits..].trim() {
            "" | "B" => 1,
            "KiB" | "Ki" => 1 << 10,
            "MiB" | "Mi" => 1 << 20,
            "GiB" | "Gi" => 1 << 30,
            "TiB" | "Ti" => 1 << 40,
            "kB" | "KB" | "K" => 1_000,
            "MB" | "M" => 1_000_000,
            "GB" | "G" => 1_000_000_000,
            "TB" | "T" => 1_000_000_000_000,
            _ => return Err(wrong()),
        };
        let bytes = number * factor as f64;
        if (1.0..1e18).contains(&bytes) { Ok(Self(bytes as u64)) } else { Err(wrong()) }
    }
}

impl From<Memory> for String {
    fn from(memory: Memory) -> String {
        memory.0.to_string()
    }
}

impl<'de> Deserialize<'de> for Memory {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Amount;
        impl serde::de::Visitor<'_> for Amount {
            type Value = Memory;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("an amount of memory such as `2GiB`")
            }

            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<Memory, E> {
                self.visit_str(&bytes.to_string())
            }

            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Memory, E> {
                self.visit_str(&bytes.to_string())
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Memory, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Amount)
    }
}

impl JsonSchema for Memory {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Memory".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "integer"], "examples": ["512MiB", "2GiB"] })
    }
}
