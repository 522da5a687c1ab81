//! Renders compose projects from a spec.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::images::HostImages;
use super::view::{Cluster, data_variable, exporter_key, image, pairs, token_environment};
use super::{HostInput, Page, containers_name, guard, mlflow, mounts, targets};
use crate::error::Result;
use crate::host::StageFile;
use crate::name::Key;
use crate::render::render;
use crate::runtime::project::mlflow::{LAUNCHER, login};
use crate::secret::{GRAFANA_USER, MLFLOW_USER, PROMETHEUS_USER};
use crate::spec::{JupyterSpec, NodeSpec, PrometheusSpec, Spec};
use crate::state::HostPorts;
use crate::util::digest;

/// The folder of the templates.
const TEMPLATES: &str = "templates/ray-compose";

/// One host's project.
pub(super) struct Project<'a> {
    pub(super) cluster: &'a Cluster<'a>,
    pub(super) host: &'a HostInput,
    pub(super) images: &'a HostImages,
    pub(super) is_head: bool,
}

impl Project<'_> {
    /// All files to deliver to the host.
    pub(super) fn files(&self, nodes: &[NodeSpec]) -> Result<Vec<StageFile>> {
        let request = self.cluster.request;
        let mut files = self.secrets(nodes);
        for name in ["start.py", "health.py", "probe.py"] {
            let (bytes, _) = request.library.read(&format!("{TEMPLATES}/{name}"))?;
            files.push(StageFile::world_readable(format!("lib/{name}"), bytes));
        }
        // As for nodes that are processes.
        for name in ["worker.py", "serving.py", "lifecycle.py"] {
            let (bytes, _) = request.library.read(&format!("templates/ray-native/{name}"))?;
            files.push(StageFile::world_readable(format!("lib/{name}"), bytes));
        }
        if self.cluster.tracks && !nodes.is_empty() {
            let login = login(request.spec, request.secrets, &self.cluster.at.mlflow)?;
            files.push(StageFile { path: format!("secrets/{}", mlflow::LOGIN), mode: 0o444, bytes: login });
        }
        files.extend(guard::files(self.cluster, self.host)?);
        let mut templates: Vec<&str> = Vec::new();
        if self.is_head {
            if self.cluster.has_mlflow {
                let (bytes, _) = request.library.read(LAUNCHER)?;
                files.push(StageFile::world_readable("lib/tracking.py".to_owned(), bytes));
            }
            if self.cluster.has_prometheus {
                templates.push("prometheus.yml");
                files.extend(targets::files(self.cluster));
            }
            if self.cluster.has_grafana {
                templates.extend(["grafana-datasources.yaml", "grafana-dashboards.yaml"]);
            }
            if self.has_jupyter() {
                templates.push("jupyter.py");
            }
        }
        let login = self.cluster.tracks.then_some(mlflow::LOGIN);
        let beside = json!({"prometheus_url": self.cluster.at.prometheus, "mlflow_login": login});
        for name in templates {
            files.push(StageFile::world_readable(format!("compose/{name}"), self.render(name, &beside)?));
        }
        // The project comes last: it holds the digests of the files that containers read at startup.
        let context = self.context(nodes, &files)?;
        files
            .push(StageFile::world_readable("compose/compose.yaml".to_owned(), self.render("compose.yaml", &context)?));
        if self.is_head {
            for (index, fragment) in request.spec.compose.iter().enumerate() {
                files.push(StageFile::world_readable(
                    format!("compose/user-{index}.yaml"),
                    fragment.text.clone().into_bytes(),
                ));
            }
        }
        Ok(files)
    }

    fn render(&self, name: &str, variables: &impl Serialize) -> Result<Vec<u8>> {
        let (text, origin) = self.cluster.request.library.read_text(&format!("{TEMPLATES}/{name}.tera"))?;
        let mut text = render(&origin.to_string(), &text, variables)?;
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text.into_bytes())
    }

    /// The credentials for this host's containers, and no others.
    fn secrets(&self, nodes: &[NodeSpec]) -> Vec<StageFile> {
        let store = self.cluster.store.as_ref();
        let mut names = Vec::new();
        // Only nodes read these.
        if !nodes.is_empty() {
            names.push("ray_token");
            names.extend(store.map(|_| "aws_credentials"));
        }
        if self.is_head {
            if store.is_some_and(|store| store.external.is_none()) {
                names.extend(["object_store_user", "object_store_password"]);
            }
            if self.cluster.has_prometheus {
                names.extend(["prometheus_web.yml", "prometheus_headers"]);
            }
            if self.cluster.has_grafana {
                names.extend(["grafana_password", "prometheus_password"]);
            }
            if self.has_jupyter() {
                names.push("jupyter_token");
            }
            if self.cluster.has_mlflow {
                names.push("mlflow_password");
            }
        }
        let guard = guard::secrets(self.cluster, self.host).unwrap_or_default();
        names.extend(guard.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
        self.cluster.request.secrets.files(&names)
    }

    pub(super) fn has_jupyter(&self) -> bool {
        self.cluster.request.spec.services().jupyter.settings().is_some()
    }

    /// The template variables of the project itself.
    fn context(&self, nodes: &[NodeSpec], files: &[StageFile]) -> Result<Value> {
        let request = self.cluster.request;
        let mut views = Vec::new();
        for node in nodes {
            let mut view = self.cluster.node(self.host, self.images, node)?;
            let secrets: Vec<String> = view.secrets.iter().map(|name| format!("secrets/{name}")).collect();
            view.files = digest_of(files, &secrets.iter().map(String::as_str).collect::<Vec<_>>());
            views.push(view);
        }
        let mut volumes = mounts::volumes(request.spec);
        let mut context = json!({
            "project": self.host.tag,
            "cluster": request.scope.cluster,
            "host": self.host.key.display_name(),
            "bridge": self.cluster.bridge,
            "interface": containers_name(&self.host.tag),
            "start_interval": Cluster::start_interval(self.host),
            "ports": self.host.ports,
            "nodes": views,
            "mounts": mounts::views(request.spec),
            "store": null,
            "prometheus": null,
            "node_exporter": self.exporter(),
            "grafana": null,
            "jupyter": null,
            "mlflow": null,
        });
        if self.is_head {
            if self.cluster.store.as_ref().is_some_and(|store| store.external.is_none()) {
                context["store"] = self.store(files);
                volumes.push("objects");
            }
            if let Some(prometheus) = request.spec.services().prometheus.settings() {
                context["prometheus"] = self.prometheus(&prometheus, files);
                volumes.push("metrics");
            }
            if self.cluster.has_grafana {
                context["grafana"] = self.grafana(files);
                volumes.push("grafana");
            }
            if let Some(jupyter) = request.spec.services().jupyter.settings() {
                context["jupyter"] = self.jupyter(&jupyter, files)?;
                if jupyter.workspace.is_none() {
                    volumes.push("workspace");
                }
            }
        }
        if self.is_head && self.cluster.has_mlflow {
            context["mlflow"] = self.mlflow(files);
            volumes.push("mlflow");
        }
        context["guard"] = guard::view(self.cluster, self.host, &|of| digest_of(files, of)).into();
        if !context["guard"].is_null() {
            context["guard"]["image"] = json!(image(&self.images.ray, self.images));
        }
        context["volumes"] = json!(volumes);
        Ok(context)
    }

    fn container(&self, kind: &str) -> String {
        self.cluster.request.scope.tag(&Key::service(kind)).to_string()
    }

    fn store(&self, files: &[StageFile]) -> Value {
        let (host, ports) = (self.host, &self.host.ports);
        let (address, console) = if self.cluster.bridge {
            (":9000".to_owned(), ":9001".to_owned())
        } else {
            (format!("{}:{}", host.address, ports.object_store), format!("127.0.0.1:{}", ports.console))
        };
        json!({
            "image": self.images.store,
            "container": self.container("objectstore"),
            "address": address,
            "console": console,
            "region": "us-east-1",
            "files": digest_of(files, &["secrets/object_store_user", "secrets/object_store_password"]),
            "capabilities": self.cluster.store.as_ref().map(|store| &store.capabilities),
        })
    }

    fn prometheus(&self, settings: &PrometheusSpec, files: &[StageFile]) -> Value {
        let port = self.host.ports.prometheus;
        json!({
            "image": self.images.prometheus,
            "container": self.container("prometheus"),
            "listen": if self.cluster.bridge { ":9090".to_owned() } else { format!("127.0.0.1:{port}") },
            "retention": settings.retention,
            "files": digest_of(files, &["compose/prometheus.yml", "secrets/prometheus_web.yml"]),
            "capabilities": settings.capabilities,
        })
    }

    fn exporter(&self) -> Option<Value> {
        let key = exporter_key(self.cluster.request, self.host);
        let listen = if self.cluster.bridge {
            format!(":{}", targets::EXPORTER)
        } else {
            format!("{}:{}", self.host.address, self.host.ports.exporter())
        };
        self.cluster.has_prometheus.then(|| {
            json!({
                "key": key,
                "image": self.images.node_exporter,
                "container": self.cluster.request.scope.tag(&key).to_string(),
                "listen": listen,
            })
        })
    }

    fn grafana(&self, files: &[StageFile]) -> Value {
        let of = [
            "compose/grafana-datasources.yaml",
            "compose/grafana-dashboards.yaml",
            "secrets/grafana_password",
            "secrets/prometheus_password",
        ];
        json!({
            "image": self.images.grafana,
            "container": self.container("grafana"),
            "root_url": self.cluster.grafana_page(&self.host.ports),
            "listen_host": if self.cluster.bridge { "" } else { "127.0.0.1" },
            "listen_port": if self.cluster.bridge { 3000 } else { self.host.ports.grafana },
            "files": digest_of(files, &of),
            "capabilities": self.cluster.request.spec.services().grafana_settings().capabilities,
        })
    }

    fn mlflow(&self, files: &[StageFile]) -> Value {
        let (cluster, host) = (self.cluster, self.host);
        let store = cluster.store_place();
        let secrets: Vec<&str> =
            std::iter::once("mlflow_password").chain(store.as_ref().map(|_| "aws_credentials")).collect();
        let read: Vec<String> = secrets.iter().map(|name| format!("secrets/{name}")).collect();
        let read: Vec<&str> = read.iter().map(String::as_str).chain(["lib/tracking.py"]).collect();
        json!({
            "image": self.images.mlflow,
            "container": self.container("mlflow"),
            "home": mlflow::HOME,
            "arguments": mlflow::arguments(cluster.request.spec, host, cluster.bridge, store.as_ref()),
            "port": mlflow::place(host, cluster.bridge).0,
            "secrets": secrets,
            "files": digest_of(files, &read),
        })
    }

    fn jupyter(&self, settings: &JupyterSpec, files: &[StageFile]) -> Result<Value> {
        let workspace = settings.workspace.as_deref();
        let (at, ports) = (&self.cluster.at, &self.host.ports);
        let mut secrets = vec!["ray_token", "jupyter_token"];
        if self.cluster.store.is_some() {
            secrets.push("aws_credentials");
        }
        if self.cluster.tracks {
            secrets.push(mlflow::LOGIN);
        }
        let mut environment: BTreeMap<String, String> = self.cluster.request.spec.environment.clone();
        let own = [
            ("RAY_ADDRESS", at.client.clone()),
            ("RAY_API_SERVER_ADDRESS", at.dashboard.clone()),
            ("RAY_USAGE_STATS_ENABLED", "0".to_owned()),
            data_variable(),
        ];
        let store = self.cluster.store_environment();
        let token = token_environment().map(|(name, value)| (name, value.to_owned()));
        for (name, value) in store.into_iter().chain(own).chain(token) {
            environment.entry(name.to_owned()).or_insert(value);
        }
        let mut of: Vec<String> = secrets.iter().map(|name| format!("secrets/{name}")).collect();
        of.push("compose/jupyter.py".to_owned());
        Ok(json!({
            "image": image(&self.images.jupyter, self.images),
            "container": self.container("jupyter"),
            "environment": pairs(self.cluster.past_proxy(environment.into_iter().collect())),
            "workspace": workspace.unwrap_or("workspace"),
            "workspace_type": if workspace.is_some() { "bind" } else { "volume" },
            "listen_host": if self.cluster.bridge { "0.0.0.0" } else { "127.0.0.1" },
            "listen_port": if self.cluster.bridge { 8888 } else { ports.jupyter },
            "secrets": secrets,
            "files": digest_of(files, &of.iter().map(String::as_str).collect::<Vec<_>>()),
            "capabilities": settings.capabilities,
        }))
    }
}

/// The digest of some of the files, for a label: compose then recreates a container that read other contents.
fn digest_of(files: &[StageFile], names: &[&str]) -> String {
    let of: Vec<_> = files
        .iter()
        .filter(|file| names.contains(&file.path.as_str()))
        .map(|file| (&file.path, digest::short(&file.bytes)))
        .collect();
    digest::of_json(&of)
}

/// The web pages of a cluster with this spec, on the head's host.
pub fn pages(spec: &Spec, head_host: &Key, ports: &HostPorts) -> Vec<Page> {
    let services = spec.services();
    let page = |name: &str, port: u16, secret: &str, user: Option<&str>| Page {
        name: name.to_owned(),
        host: head_host.clone(),
        port,
        secret: secret.to_owned(),
        user: user.map(str::to_owned),
        user_secret: None,
    };
    let mut pages = vec![page("dashboard", ports.dashboard, "ray_token", None)];
    if services.has_grafana() {
        pages.push(page("grafana", ports.grafana, "grafana_password", Some(GRAFANA_USER)));
    }
    if services.prometheus.settings().is_some() {
        pages.push(page("prometheus", ports.prometheus, "prometheus_password", Some(PROMETHEUS_USER)));
    }
    if services.object_store.settings().is_some_and(|store| store.external.is_none()) {
        let mut console = page("object-store", ports.console, "object_store_password", None);
        console.user_secret = Some("object_store_user".to_owned());
        pages.push(console);
    }
    if services.jupyter.settings().is_some() {
        pages.push(page("jupyter", ports.jupyter, "jupyter_token", None));
    }
    if spec.own_mlflow() {
        pages.push(page("mlflow", ports.mlflow, "mlflow_password", Some(MLFLOW_USER)));
    }
    pages
}
