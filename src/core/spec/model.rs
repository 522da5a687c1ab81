//! The types of the spec: the content of a `cluster.yaml`.

mod data;
mod end;
mod files;
mod limits;
mod memory;
mod mounts;
mod notify;
mod outputs;
mod serve;
mod services;
mod setup;
mod workers;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::data::{DataSource, DataSpec, WORK_FOLDER};
pub use self::end::{Bucket, EndSpec, IdleSpec, SaveFrom, SaveSpec, SaveTo, Then};
pub use self::files::FileSpec;
pub use self::limits::{ASK_ABOVE, Amount, Deadline};
pub use self::memory::Memory;
pub use self::mounts::{MountSource, MountSpec};
pub(in crate::spec) use self::notify::fault as webhook_fault;
pub use self::notify::{NotifySpec, Route, Webhook, WebhookUrl};
pub use self::outputs::{OutputPath, same_name};
pub use self::serve::{ServeAnswer, ServeMethod, ServeRequest, ServeSpec};
use self::services::PrometheusChoice;
pub use self::services::{
    BuildSpec, ExternalMlflow, ExternalStore, Fragment, GrafanaSpec, IMAGE_NAMES, Images, JupyterSpec, MLFLOW_VERSION,
    MlflowSpec, ObjectStoreSpec, PrometheusSpec, Services, ServicesSpec, StoreKind, Switchable,
};
pub use self::setup::SetupSpec;
pub use self::workers::{HostChoice, Per, WorkerGroup, Workers};
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
    /// Applications of Ray Serve, deployed once the nodes are ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub serve: Vec<ServeSpec>,
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
    /// What happens in the last minutes before the cluster ends, whatever ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<EndSpec>,
    /// What happens when nobody uses the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleSpec>,
    /// Where the news of the cluster goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<NotifySpec>,
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

impl Spec {
    /// The services beside Ray, with defaults where the spec has none.
    pub fn services(&self) -> Services {
        let given = self.services.clone().unwrap_or_default();
        let by_default = self.runtime == Runtime::Docker;
        Services {
            object_store: given.object_store.unwrap_or(Switchable::Switch(by_default)),
            prometheus: match given.prometheus {
                Some(PrometheusChoice::Own(own)) => own,
                Some(PrometheusChoice::There(_)) => Switchable::Switch(false),
                None => Switchable::Switch(by_default),
            },
            grafana: given.grafana,
            jupyter: given.jupyter.unwrap_or(Switchable::Switch(by_default)),
            mlflow: given.mlflow.unwrap_or(Switchable::Switch(false)),
        }
    }

    /// Whether gpucl starts an MLflow server for the cluster.
    pub fn own_mlflow(&self) -> bool {
        self.services().mlflow.settings().is_some_and(|mlflow| mlflow.external.is_none())
    }

    /// The MLflow server that jobs use instead of one of the cluster's own.
    pub fn external_mlflow(&self) -> Option<ExternalMlflow> {
        self.services().mlflow.settings()?.external
    }

    /// The object store that gpucl starts for the cluster, if it has one.
    pub fn own_store(&self) -> Option<ObjectStoreSpec> {
        self.services().object_store.settings().filter(|store| store.external.is_none())
    }

    /// Whether anything runs beside Ray on the head's host: a service, or what the user's compose files add.
    pub fn runs_services(&self) -> bool {
        let services = self.services();
        let has_store = services.object_store.settings().is_some_and(|store| store.external.is_none());
        let has_others = services.prometheus.settings().is_some() || services.jupyter.settings().is_some();
        self.runtime == Runtime::Docker && (has_store || has_others || !self.compose.is_empty())
    }

    /// Whether the platform's own Prometheus is to collect the cluster's metrics.
    pub fn has_existing_prometheus(&self) -> bool {
        let given = self.services.as_ref().and_then(|services| services.prometheus.as_ref());
        matches!(given, Some(PrometheusChoice::There(_)))
    }

    /// The external object store, if the spec has one.
    pub fn external_store(&self) -> Option<ExternalStore> {
        self.services().object_store.settings().and_then(|store| store.external)
    }

    /// The store that what is saved at the end goes to, if any of it goes to one.
    pub fn store_at_end(&self) -> Option<ExternalStore> {
        let end = self.end.as_ref().filter(|end| end.save.iter().any(|save| matches!(save.to, SaveTo::Bucket(_))))?;
        end.store.clone().or_else(|| self.external_store())
    }

    /// Whether hosts have something to fill.
    pub fn has_data(&self) -> bool {
        !self.data.is_empty() || !self.files.is_empty()
    }

    /// What `up` fills on each of what has a data folder of its own, `host` or `node`; one sentence each.
    pub fn data_notes(&self, each: &str) -> Vec<String> {
        let note = |data: &DataSpec| {
            format!("$GPUCL_DATA/{} is filled once on each {each}, {}", data.name, data.from.describe())
        };
        let files =
            self.files.iter().map(|file| format!("$GPUCL_DATA/{} is {}, on each {each}", file.to, file.describe()));
        self.data.iter().map(note).chain(files).collect()
    }

    /// The setup, if it installs or runs anything. MLflow's client is part of it where the cluster has MLflow, unless
    /// the spec installs another.
    pub fn setup(&self) -> Option<Cow<'_, SetupSpec>> {
        let own = self.setup.as_ref().filter(|setup| !setup.packages().is_empty() || !setup.commands.is_empty());
        let has_client = || own.is_some_and(|setup| setup.packages().into_iter().any(is_mlflow));
        if self.services().mlflow.settings().is_none() || has_client() {
            return own.map(Cow::Borrowed);
        }
        let mut setup = own.cloned().unwrap_or_default();
        setup.pip.push(format!("mlflow-skinny=={MLFLOW_VERSION}"));
        Some(Cow::Owned(setup))
    }

    /// Whether the workers of a group may run on the n-th host.
    pub fn runs_on(&self, group: &WorkerGroup, host: usize) -> bool {
        group.hosts.as_ref().is_none_or(|choices| choices.iter().any(|choice| choice.among(&self.hosts) == [host]))
    }

    /// What a person should know about where workers run before anything is acquired: hosts on which nothing does.
    pub fn worker_notes(&self) -> Vec<String> {
        let groups = self.ray.workers.groups();
        let mut used = vec![false; self.hosts.len()];
        // The head, and services.
        used.iter_mut().take(1).for_each(|host| *host = true);
        for group in groups {
            let hosts = (0..self.hosts.len()).filter(|host| self.runs_on(group, *host));
            let count = if group.per.is_some() { usize::MAX } else { group.count.unwrap_or(1) as usize };
            hosts.take(count).for_each(|host| used[host] = true);
        }
        let idle: Vec<String> =
            (0..used.len()).filter(|host| !used[*host]).map(|host| format!("host-{host}")).collect();
        if idle.is_empty() {
            return Vec::new();
        }
        let verb = if idle.len() == 1 { "runs" } else { "run" };
        let list = idle.join(", ");
        vec![format!("{list} {verb} no worker: `ray: {{workers: {{per: host}}}}` has one on each host, with its GPUs")]
    }

    /// What the spec mounts of its hosts, one sentence each, for the person who brings it up.
    pub fn mount_notes(&self) -> Vec<String> {
        let note = |mount: &MountSpec| {
            let what = match mount.source()? {
                MountSource::Host(path) => format!("{path} of every host"),
                MountSource::FileSystem(path) => {
                    format!("the file system {} ({path})", mount.file_system.as_deref().unwrap_or_default())
                }
                MountSource::Volume(_) => return None,
            };
            let how = if mount.read_only { "read" } else { "read and change" };
            Some(format!("jobs and notebooks can {how} {what}, at {}", mount.at))
        };
        self.mounts.iter().filter_map(note).collect()
    }
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

/// Whether a requirement is MLflow, or its client alone.
fn is_mlflow(requirement: &str) -> bool {
    let name = requirement.trim().split(|letter: char| !letter.is_ascii_alphanumeric() && !"-_.".contains(letter));
    let name = name.into_iter().next().unwrap_or_default().to_lowercase().replace(['_', '.'], "-");
    matches!(name.as_str(), "mlflow" | "mlflow-skinny" | "mlflow-tracing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_without_content_is_none() {
        let spec = |setup: &str| serde_yaml::from_str::<Spec>(&format!("name: demo\nsetup: {setup}\n")).unwrap();
        assert!(spec("{}").setup().is_none());
        assert!(spec("{index_url: 'https://h/simple'}").setup().is_none());
        assert!(spec("{commands: ['true']}").setup().is_some());
    }

    #[test]
    fn the_client_of_mlflow_is_part_of_the_setup_unless_the_spec_installs_another() {
        let packages = |setup: &str| {
            let text = format!("name: demo\nservices: {{mlflow: true}}\nsetup: {setup}\n");
            let spec: Spec = serde_yaml::from_str(&text).unwrap();
            spec.setup().unwrap().packages().into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let client = format!("mlflow-skinny=={MLFLOW_VERSION}");
        assert_eq!(packages("{}"), [client.as_str()]);
        assert_eq!(packages("{pip: [torch, mlflow-thing]}"), ["torch", "mlflow-thing", &client]);
        for own in ["mlflow", "MLflow[extras]>=3", "mlflow_skinny == 3.1"] {
            assert_eq!(packages(&format!("{{pip: ['{own}']}}")), [own], "{own}");
        }
    }
}
