//! The variables of a project's templates.

use std::collections::BTreeMap;

use serde::Serialize;

use super::images::HostImages;
use super::ports::NodePorts;
use super::shared_memory::{loader_room, shared_memory};
use super::{DATA_IN_CONTAINERS, DeployRequest, HostInput, mlflow};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Key;
use crate::playbook::{GpuFact, RunAs, Vendor};
use crate::ray::NAME_LABEL;
use crate::runtime::native::resource_of;
use crate::spec::{NodeRole, NodeSpec, ObjectStoreSpec, Spec};
use crate::state::HostPorts;
use crate::util::proxy::{host_of, past_proxy};

/// The port of the GCS in the containers' bridge network.
const GCS: u16 = 6379;
/// The port of a node's agent in a bridge network.
const AGENT: u16 = 52365;
/// The port of Serve's applications in a bridge network.
pub(super) const SERVE: u16 = 8000;
/// The ports of a node's metrics in a bridge network: Ray's own usual ones.
const BRIDGE_METRICS: [u16; 3] = [8080, 44_217, 44_227];
/// The first Docker version that reads CDI without configuration.
const CDI_FROM: (u32, u32) = (28, 2);
/// The first Docker version with `start_interval`.
const START_INTERVAL_FROM: (u32, u32) = (25, 0);

/// An environment variable.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Pair {
    name: String,
    value: String,
}

/// An image, and whether it is built on the host.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ImageView {
    name: String,
    built: bool,
}

/// A Ray node.
#[derive(Debug, Clone, Serialize)]
pub(super) struct NodeView {
    key: String,
    container: String,
    hostname: String,
    image: ImageView,
    command: Vec<String>,
    environment: Vec<Pair>,
    shm_size: u64,
    cdi: Vec<String>,
    requested: Vec<String>,
    device_files: Vec<String>,
    groups: Vec<u32>,
    ports: Vec<String>,
    /// The files of `secrets/` mounted into it.
    pub(super) secrets: Vec<String>,
    dashboards: bool,
    health: Vec<String>,
    /// The digest of the files that it reads only at startup.
    pub(super) files: String,
    /// The capabilities to keep; by default none.
    capabilities: Vec<String>,
}

/// The addresses of the cluster's parts, as seen on the head's host.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    /// The head's GCS.
    pub(super) gcs: String,
    /// The dashboard, for services.
    pub(super) dashboard: String,
    /// Ray's client server.
    pub(super) client: String,
    /// The object store, for every node.
    pub(super) store: String,
    pub(super) prometheus: String,
    pub(super) grafana: String,
    pub(super) jupyter: String,
    pub(super) mlflow: String,
}

/// Values computed once per cluster.
pub(super) struct Cluster<'a> {
    pub(super) request: &'a DeployRequest<'a>,
    /// A single host: its containers have their own network, reachable only from the host's loopback.
    pub(super) bridge: bool,
    pub(super) at: Addresses,
    pub(super) store: Option<ObjectStoreSpec>,
    pub(super) has_prometheus: bool,
    pub(super) has_grafana: bool,
    /// Whether the cluster has a server of its own.
    pub(super) has_mlflow: bool,
    /// Whether jobs have a server, of the cluster's own or another.
    pub(super) tracks: bool,
}

impl<'a> Cluster<'a> {
    pub(super) fn new(request: &'a DeployRequest<'a>) -> Result<Self> {
        let head = request.hosts.first().ok_or_else(|| {
            Error::new(ErrorKind::Internal, "render the compose projects").because("there is no host")
        })?;
        let services = request.spec.services();
        let store = services.object_store.settings();
        let bridge = is_bridge(request.spec);
        Ok(Self {
            request,
            bridge,
            at: addresses(head, bridge, store.as_ref()),
            store,
            has_prometheus: services.prometheus.settings().is_some(),
            has_grafana: services.has_grafana(),
            has_mlflow: request.spec.own_mlflow(),
            tracks: services.mlflow.settings().is_some(),
        })
    }

    /// The URL and the region of the object store; `None` if the cluster has none.
    pub(super) fn store_place(&self) -> Option<(String, String)> {
        let store = self.store.as_ref()?;
        let region = store.external.as_ref().map_or("us-east-1", |external| &external.region);
        Some((self.at.store.clone(), region.to_owned()))
    }

    /// The variables that point programs to the object store.
    pub(super) fn store_environment(&self) -> Vec<(&'static str, String)> {
        let Some((endpoint, region)) = self.store_place() else { return Vec::new() };
        vec![
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_DEFAULT_REGION", region.clone()),
            ("AWS_REGION", region),
            ("AWS_SHARED_CREDENTIALS_FILE", "/run/gpucl/secrets/aws_credentials".to_owned()),
        ]
    }

    /// The port of a node's metrics, and those of the autoscaler and of the dashboard, which only a head has.
    pub(super) fn metrics_ports(&self, host: &HostInput, node: &NodeSpec) -> [u16; 3] {
        if self.bridge {
            return BRIDGE_METRICS;
        }
        let own = self.node_ports(host, node);
        [own.metrics(), own.autoscaler_metrics(), own.dashboard_metrics()]
    }

    /// The ports of a node on its host's network.
    pub(super) fn node_ports(&self, host: &HostInput, node: &NodeSpec) -> NodePorts {
        let here: Vec<&NodeSpec> = self.request.nodes.iter().filter(|other| other.host == host.key).collect();
        let index = here.iter().position(|other| other.key == node.key).unwrap_or_default();
        NodePorts::of(&host.ports, index, here.len())
    }

    /// The template variables of one Ray node.
    pub(super) fn node(&self, host: &HostInput, images: &HostImages, node: &NodeSpec) -> Result<NodeView> {
        let own = self.node_ports(host, node);
        let is_head = node.role == NodeRole::Head;
        // A head without CPUs runs no training.
        let loaders =
            if is_head && node.cpus == 0 { 0 } else { loader_room(host.facts.capacity(RunAs::Containers).memory) };
        let mut view = NodeView {
            key: node.key.to_string(),
            container: self.request.scope.tag(&node.key).to_string(),
            hostname: node.key.display_name(),
            image: image(&images.ray, images),
            command: self.command(host, node, own),
            environment: pairs(self.environment(host, node)),
            shm_size: shared_memory(node.object_store_memory, loaders),
            cdi: Vec::new(),
            requested: Vec::new(),
            device_files: Vec::new(),
            groups: Vec::new(),
            ports: Vec::new(),
            secrets: vec!["ray_token".to_owned()],
            dashboards: is_head && self.has_grafana,
            health: Vec::new(),
            files: String::new(),
            capabilities: self.request.spec.ray.capabilities.clone(),
        };
        if self.store.is_some() {
            view.secrets.push("aws_credentials".to_owned());
        }
        if self.tracks {
            view.secrets.push(mlflow::LOGIN.to_owned());
        }
        let agent = if self.bridge { AGENT } else { own.agent() };
        if is_head {
            let dashboard = if self.bridge { 8265 } else { host.ports.dashboard };
            view.health.push(format!("{dashboard}/api/gcs_healthz"));
            if self.has_prometheus {
                view.secrets.push("prometheus_headers".to_owned());
            }
            if self.bridge {
                view.ports.push(format!("127.0.0.1:{}:8265", host.ports.dashboard));
                view.ports.push(format!("127.0.0.1:{}:10001", host.ports.client));
                if host.ports.serve != 0 {
                    view.ports.push(format!("127.0.0.1:{}:{SERVE}", host.ports.serve));
                }
            }
        }
        view.health.push(format!("{agent}/api/local_raylet_healthz"));
        self.give_gpus(host, node, &mut view)?;
        Ok(view)
    }

    /// Pins the node's GPUs by UUID or render node, never by index, which a reboot may change.
    fn give_gpus(&self, host: &HostInput, node: &NodeSpec, view: &mut NodeView) -> Result<()> {
        for gpu in gpus_of(host, node)? {
            match gpu.vendor {
                Vendor::Nvidia => {
                    let uuid = gpu.uuid.as_deref().ok_or_else(|| no_id(host, node, gpu, "UUID"))?;
                    if reads_cdi(host) {
                        view.cdi.push(format!("nvidia.com/gpu={uuid}"));
                    } else {
                        view.requested.push(uuid.to_owned());
                    }
                }
                Vendor::Amd => {
                    let render = gpu.render.as_deref().ok_or_else(|| no_id(host, node, gpu, "render node"))?;
                    view.device_files.push(format!("/dev/dri/{render}"));
                }
            }
        }
        if !view.device_files.is_empty() {
            // All processes with a GPU share this device; the render node selects the GPU.
            view.device_files.insert(0, "/dev/kfd".to_owned());
            view.groups = host.facts.groups.values().copied().collect();
        }
        if view.requested.is_empty() {
            // CUDA images request all GPUs, and some engines would grant them.
            view.environment.push(Pair { name: "NVIDIA_VISIBLE_DEVICES".to_owned(), value: "void".to_owned() });
        }
        Ok(())
    }

    fn command(&self, host: &HostInput, node: &NodeSpec, own: NodePorts) -> Vec<String> {
        let is_head = node.role == NodeRole::Head;
        let mut words: Vec<String> = ["python3", "/opt/gpucl/start.py"].map(str::to_owned).into();
        if is_head {
            words.push("head".to_owned());
        } else {
            words.extend(["worker".to_owned(), self.at.gcs.clone()]);
        }
        words.extend(["--", "ray", "start", "--block", "--disable-usage-stats"].map(str::to_owned));
        let mut flag = |name: &str, value: String| words.push(format!("--{name}={value}"));
        if is_head {
            let (dashboard_host, gcs, dashboard, client) = if self.bridge {
                // Inside its own network only; the engine publishes it on the host's loopback.
                ("0.0.0.0", GCS, 8265, 10_001)
            } else {
                ("127.0.0.1", host.ports.gcs(), host.ports.dashboard, host.ports.client)
            };
            flag("port", gcs.to_string());
            flag("dashboard-host", dashboard_host.to_owned());
            flag("dashboard-port", dashboard.to_string());
            flag("ray-client-server-port", client.to_string());
        } else {
            flag("address", self.at.gcs.clone());
        }
        if self.bridge {
            flag("metrics-export-port", self.metrics_ports(host, node)[0].to_string());
            flag("dashboard-agent-listen-port", AGENT.to_string());
        } else {
            flag("node-ip-address", host.address.clone());
            for (name, port) in own.flags() {
                flag(name, port.to_string());
            }
        }
        let mut resources = node.resources.clone();
        // This resource identifies the node, so that a task can be sent to it.
        resources.insert(resource_of(&node.key), 1.0);
        let mut labels = node.labels.clone();
        labels.insert(NAME_LABEL.to_owned(), node.key.display_name());
        flag("num-cpus", node.cpus.to_string());
        flag("num-gpus", node.gpus.to_string());
        flag("memory", node.memory.to_string());
        flag("object-store-memory", node.object_store_memory.to_string());
        flag("resources", serde_json::to_string(&resources).unwrap_or_default());
        flag("labels", labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(","));
        if is_head {
            words.push("--head".to_owned());
        }
        words
    }

    fn environment(&self, host: &HostInput, node: &NodeSpec) -> Vec<(String, String)> {
        let mut environment: Vec<(&str, String)> =
            vec![("PYTHONUNBUFFERED", "1".to_owned()), ("RAY_USAGE_STATS_ENABLED", "0".to_owned()), data_variable()];
        environment.extend(self.store_environment());
        if node.role == NodeRole::Head {
            if self.has_prometheus {
                environment.push(("RAY_PROMETHEUS_HOST", self.at.prometheus.clone()));
                environment.push(("RAY_PROMETHEUS_NAME", "Prometheus".to_owned()));
            }
            if self.has_grafana {
                environment.push(("RAY_GRAFANA_HOST", self.at.grafana.clone()));
                environment.push(("RAY_GRAFANA_IFRAME_HOST", self.grafana_page(&host.ports)));
                environment.push(("RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR", "/opt/gpucl-dashboards".to_owned()));
            } else {
                environment.push(("RAY_GRAFANA_HOST", "DISABLED".to_owned()));
            }
        }
        let mut all: Vec<(String, String)> =
            environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        // The user's variables override those that only locate things. A spec cannot have those that are fixed.
        all.retain(|(name, _)| !node.environment.contains_key(name));
        all.extend(node.environment.clone());
        let mut fixed: Vec<(&str, String)> = token_environment().map(|(name, value)| (name, value.to_owned())).into();
        fixed.extend(self.tracks.then(mlflow::environment));
        if node.role == NodeRole::Head {
            let [_, autoscaler, dashboard] = self.metrics_ports(host, node);
            fixed.push(("AUTOSCALER_METRIC_PORT", autoscaler.to_string()));
            fixed.push(("DASHBOARD_METRIC_PORT", dashboard.to_string()));
        }
        all.extend(fixed.into_iter().map(|(name, value)| (name.to_owned(), value)));
        self.past_proxy(all)
    }

    /// The variables, by which a proxy of the spec is not asked for the cluster's own servers.
    pub(super) fn past_proxy(&self, environment: Vec<(String, String)>) -> Vec<(String, String)> {
        let at = &self.at;
        let own_store = self.store.as_ref().is_none_or(|store| store.external.is_none());
        let servers = [&at.gcs, &at.dashboard, &at.prometheus, &at.grafana, &at.jupyter].into_iter();
        let servers = servers.chain(own_store.then_some(&at.store)).chain(self.has_mlflow.then_some(&at.mlflow));
        let servers = servers.map(|address| host_of(address));
        let hosts: Vec<String> = match self.bridge {
            true => servers.collect(),
            false => self.request.hosts.iter().map(|host| host.address.clone()).collect(),
        };
        let order: Vec<String> = environment.iter().map(|(name, _)| name.clone()).collect();
        let mut all: BTreeMap<String, String> = environment.into_iter().collect();
        past_proxy(&mut all, &hosts);
        let known = order.into_iter().filter_map(|name| all.remove_entry(&name)).collect::<Vec<_>>();
        known.into_iter().chain(all).collect()
    }

    /// Grafana's URL for the user's browser.
    pub(super) fn grafana_page(&self, ports: &HostPorts) -> String {
        format!("http://127.0.0.1:{}", self.request.pages.get("grafana").copied().unwrap_or(ports.grafana))
    }

    /// Whether the host's engine supports `start_interval`.
    pub(super) fn start_interval(host: &HostInput) -> bool {
        engine(host).is_none_or(|version| version >= START_INTERVAL_FROM)
    }
}

/// Whether a cluster's containers have a network of their own: on a single host.
pub(super) fn is_bridge(spec: &Spec) -> bool {
    spec.hosts.len() <= 1
}

/// The variable that names the data folder.
pub(super) fn data_variable() -> (&'static str, String) {
    ("GPUCL_DATA", DATA_IN_CONTAINERS.to_owned())
}

/// The variables that authenticate every process of the cluster.
pub(super) fn token_environment() -> [(&'static str, &'static str); 2] {
    [("RAY_AUTH_MODE", "token"), ("RAY_AUTH_TOKEN_PATH", "/run/gpucl/secrets/ray_token")]
}

fn addresses(head: &HostInput, bridge: bool, store: Option<&ObjectStoreSpec>) -> Addresses {
    let ports = &head.ports;
    let local = |port: u16| format!("http://127.0.0.1:{port}");
    let mut at = if bridge {
        Addresses {
            gcs: format!("head:{GCS}"),
            dashboard: "http://head:8265".to_owned(),
            client: "ray://head:10001".to_owned(),
            store: "http://objectstore:9000".to_owned(),
            prometheus: "http://prometheus:9090".to_owned(),
            grafana: "http://grafana:3000".to_owned(),
            jupyter: "http://jupyter:8888".to_owned(),
            mlflow: mlflow::url(head, bridge),
        }
    } else {
        Addresses {
            gcs: format!("{}:{}", head.address, ports.gcs()),
            dashboard: local(ports.dashboard),
            client: format!("ray://127.0.0.1:{}", ports.client),
            store: format!("http://{}:{}", head.address, ports.object_store),
            prometheus: local(ports.prometheus),
            grafana: local(ports.grafana),
            jupyter: local(ports.jupyter),
            mlflow: mlflow::url(head, bridge),
        }
    };
    if let Some(external) = store.and_then(|store| store.external.as_ref()) {
        at.store.clone_from(&external.endpoint);
    }
    at
}

/// The GPUs that a node owns; empty when they are only declared.
pub(super) fn gpus_of<'a>(host: &'a HostInput, node: &NodeSpec) -> Result<&'a [GpuFact]> {
    let Some(first) = node.first_gpu else { return Ok(&[]) };
    let (first, count) = (first as usize, node.gpus as usize);
    host.facts.gpus.get(first..first + count).ok_or_else(|| {
        Error::new(ErrorKind::Host, format!("give {} its GPUs", node.key.display_name())).because(format!(
            "it is assigned GPUs {} to {} of {}, which has {}",
            first + 1,
            first + count,
            host.key.display_name(),
            host.facts.gpus.len()
        ))
    })
}

fn no_id(host: &HostInput, node: &NodeSpec, gpu: &GpuFact, what: &str) -> Error {
    let name = host.key.display_name();
    let error = Error::new(ErrorKind::Host, format!("give {} its GPU", node.key.display_name()))
        .because(format!("the driver of {name} reports no {what} for the GPU at {}", gpu.pci));
    match gpu.vendor {
        Vendor::Nvidia => error.hint(format!("check its driver: gpucl exec --host {name} -- nvidia-smi -L")),
        Vendor::Amd => error.hint(format!("check its driver: gpucl exec --host {name} -- ls -l /dev/dri /dev/kfd")),
    }
}

fn reads_cdi(host: &HostInput) -> bool {
    engine(host).is_none_or(|version| version >= CDI_FROM)
}

/// The version of the host's engine; `None` before it is installed, which gives a recent one.
fn engine(host: &HostInput) -> Option<(u32, u32)> {
    let text = host.facts.docker_engine.as_ref().or(host.facts.docker.as_ref())?;
    let mut numbers = text.split('.').map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

pub(super) fn image(name: &str, images: &HostImages) -> ImageView {
    ImageView { name: name.to_owned(), built: images.is_built(name) }
}

pub(super) fn pairs(list: impl IntoIterator<Item = (String, String)>) -> Vec<Pair> {
    list.into_iter().map(|(name, value)| Pair { name, value }).collect()
}

/// The key of a host's node exporter: each host has one.
pub(super) fn exporter_key(request: &DeployRequest<'_>, host: &HostInput) -> Key {
    let index = request.hosts.iter().position(|other| other.key == host.key).unwrap_or_default();
    Key::numbered("nodeexporter", index)
}
