//! The objects of a cluster, rendered from the templates. Pure.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::config::{HEAD, ServiceType, Settings};
use super::container::{environment, is_plain, mounts, placement, resources, start_parameters};
use super::monitoring::peer;
use super::names::{GUARD_CONTAINER, ObjectKind, PODS, TOKEN_KEY, annotations, labels, object_name};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::{Scope, Tag};
use crate::provider::ResourceRequest;
use crate::provider::platform::{ClusterRequest, GUARD, NodeGroup, PREPARATION, Preparation, SECRETS};
use crate::render::{Library, render};
use crate::util::digest;
use crate::util::duration::SpecDuration;
use crate::util::human;

const RAY_CLUSTER: &str = "templates/raycluster/raycluster.yaml.tera";
const POLICY: &str = "templates/raycluster/networkpolicy.yaml.tera";
const MONITOR: &str = "templates/raycluster/podmonitor.yaml.tera";
/// What pods have in the cluster's Secret beside the token, by key: by these a job's processes get its secrets, and
/// applications ask for a key.
const PROGRAMS: [(&str, &str); 4] = [
    ("sitecustomize.py", "templates/raycluster/sitecustomize.py"),
    ("gpucl_worker.py", "templates/ray-native/worker.py"),
    ("gpucl_serving.py", "templates/ray-native/serving.py"),
    ("gpucl_lifecycle.py", "templates/ray-native/lifecycle.py"),
];
/// How long a worker may be idle, in seconds, unless the settings say it; it is KubeRay's own.
const USUAL_IDLE: u64 = 60;
/// How much of a digest a label holds.
const DIGEST_LENGTH: usize = 40;
/// The most that the files of a preparation may have, in bytes: an object holds one and a half MiB in all, and a third of
/// it is lost to base64.
const MOST_FILES: usize = 900 << 10;

/// What the templates are rendered from.
#[derive(Serialize)]
struct View {
    name: String,
    ray_version: String,
    stopped: bool,
    scales: bool,
    idle_seconds: u64,
    service_type: &'static str,
    /// The RayCluster's own labels. They are none of its pods'.
    labels: BTreeMap<String, String>,
    /// The folder with the cluster's Secret.
    secrets: &'static str,
    head: Pod,
    workers: Vec<Group>,
    /// The Prometheus that collects metrics.
    prometheus: Option<PrometheusView>,
    /// What pods run before Ray, and for how many seconds at most; `None` if nothing.
    preparation: Option<PreparationView>,
}

#[derive(Serialize)]
struct PrometheusView {
    labels: BTreeMap<String, String>,
    peer: Value,
}

#[derive(Serialize)]
struct PreparationView {
    folder: &'static str,
    seconds: u64,
}

#[derive(Serialize)]
struct Group {
    name: String,
    count: u32,
    min: u32,
    max: u32,
    scales: bool,
    ray_labels: BTreeMap<String, String>,
    #[serde(flatten)]
    pod: Pod,
}

/// The pods of a group.
#[derive(Serialize)]
struct Pod {
    image: String,
    start: BTreeMap<&'static str, String>,
    environment: Vec<Value>,
    environment_from: Vec<Value>,
    labels: BTreeMap<String, String>,
    // Left out where there are none: a digest of an older version stays the same.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    placement: Map<String, Value>,
    requests: Map<String, Value>,
    limits: Map<String, Value>,
    volumes: Vec<Value>,
    volume_mounts: Vec<Value>,
    /// The digest of the packages and commands.
    setup: Option<String>,
    /// The container of the guard; the head's alone has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<Guard>,
}

/// The container of the guard of the end.
#[derive(Serialize)]
struct Guard {
    name: &'static str,
    folder: &'static str,
    volume_mounts: Vec<Value>,
}

/// Renders the objects of clusters.
#[derive(Debug, Clone)]
pub(super) struct Renderer {
    pub(super) settings: Settings,
    pub(super) library: Library,
}

impl Renderer {
    /// The requests of a cluster's objects, in the order in which they are made.
    pub(super) fn requests(&self, scope: &Scope, cluster: &ClusterRequest) -> Result<Vec<ResourceRequest>> {
        let mut requests = vec![request(ObjectKind::Token, self.token(scope)?)];
        let view = self.view(scope, cluster)?;
        if self.settings.has_policy() {
            requests.push(request(ObjectKind::Policy, self.rendered(POLICY, &view)?));
        }
        if cluster.prometheus.is_some() {
            let mut monitor = request(ObjectKind::Monitor, self.rendered(MONITOR, &view)?);
            // The Secret owns it.
            monitor.needs = vec![ObjectKind::Token.key()];
            requests.push(monitor);
        }
        if let Some(preparation) = &cluster.preparation {
            requests.push(request(ObjectKind::Preparation, config_map(&view.name, preparation)?));
        }
        let mut cluster = request(ObjectKind::RayCluster, self.rendered(RAY_CLUSTER, &view)?);
        cluster.needs = requests.iter().map(|request| request.key.clone()).collect();
        requests.push(cluster);
        Ok(requests)
    }

    /// The objects as documents for `kubectl apply --server-side`, without the token.
    pub(super) fn manifest(&self, scope: &Scope, cluster: &ClusterRequest) -> Result<String> {
        let name = object_name(scope);
        let mut text =
            format!("# The token is not in it: kubectl create secret generic {name} --from-file={TOKEN_KEY}=FILE\n");
        for request in
            self.requests(scope, cluster)?.iter().filter(|request| request.kind.0 != ObjectKind::Token.name())
        {
            let object = tagged(request, &scope.tag(&request.key));
            let document = serde_saphyr::to_string(&object).doing(ErrorKind::Internal, || format!("write {name}"))?;
            text.push_str("---\n");
            text.push_str(&document);
        }
        Ok(text)
    }

    /// The Secret, to which the token is added when it is made.
    fn token(&self, scope: &Scope) -> Result<Value> {
        let mut texts = Map::new();
        for (key, template) in PROGRAMS {
            let (bytes, origin) = self.library.read(template)?;
            let text = String::from_utf8(bytes).doing(ErrorKind::Spec, || format!("read {origin}"))?;
            texts.insert(key.to_owned(), json!(text));
        }
        Ok(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": object_name(scope) }, "stringData": texts,
        }))
    }

    fn rendered(&self, template: &str, view: &View) -> Result<Value> {
        let (bytes, origin) = self.library.read(template)?;
        let doing = || format!("read {origin} as YAML");
        let text = String::from_utf8(bytes).doing(ErrorKind::Spec, doing)?;
        let text = render(template, &text, view)?;
        let mut object: Value = serde_saphyr::from_str(&text).doing(ErrorKind::Spec, doing)?;
        // Templates write keys in any order; the object's digest must not depend on it.
        object.sort_all_objects();
        match object["metadata"]["name"] == json!(view.name) {
            true => Ok(object),
            false => Err(Error::new(ErrorKind::Spec, doing()).because(format!("its name is not {}", view.name))),
        }
    }

    fn view(&self, scope: &Scope, cluster: &ClusterRequest) -> Result<View> {
        let name = object_name(scope);
        let known: Vec<&str> = cluster.workers.iter().map(|group| group.name.as_str()).collect();
        if let Some(unknown) = self.settings.groups.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(Error::new(ErrorKind::Spec, "read the settings of the provider `kubernetes`")
                .because(format!("`groups.{unknown}`: the spec has no group of workers of that name"))
                .hint(format!("there are: {}", known.join(", "))));
        }
        for group in &cluster.workers {
            if let Some(resource) = group.resources.keys().find(|resource| !is_plain(resource)) {
                return Err(Error::new(ErrorKind::Spec, format!("render the group {}", group.name))
                    .because(format!("`resources.{resource}`: KubeRay takes no name with a quote or a backslash")));
            }
        }
        if cluster.scales() {
            for group in &cluster.workers {
                if let Some((resource, amount)) = group.resources.iter().find(|(_, amount)| amount.fract() != 0.0) {
                    return Err(Error::new(ErrorKind::Spec, format!("render the group {}", group.name))
                        .because(format!(
                            "`resources.{resource}` is {amount}: Ray's autoscaler takes whole numbers only"
                        ))
                        .hint("give every group a fixed `count`, or the resource a whole number"));
                }
            }
        }
        let group = |group: &NodeGroup| -> Group {
            Group {
                name: group.name.clone(),
                count: group.count,
                min: group.min,
                max: group.max,
                scales: group.scales(),
                ray_labels: group.labels.clone(),
                pod: self.pod(&name, cluster, group, &group.name),
            }
        };
        Ok(View {
            ray_version: cluster.ray_version.clone(),
            stopped: cluster.stopped,
            scales: cluster.scales(),
            idle_seconds: self.settings.idle_timeout.map_or(USUAL_IDLE, |SpecDuration(idle)| idle.as_secs().max(1)),
            service_type: self.settings.service_type.name(),
            labels: self.settings.labels.clone(),
            secrets: SECRETS,
            head: self.pod(&name, cluster, &cluster.head, HEAD),
            workers: cluster.workers.iter().map(group).collect(),
            prometheus: cluster
                .prometheus
                .as_ref()
                .map(|prometheus| PrometheusView { labels: prometheus.labels.clone(), peer: peer(prometheus) }),
            preparation: cluster
                .preparation
                .as_ref()
                .map(|preparation| PreparationView { folder: PREPARATION, seconds: preparation.limit.as_secs() }),
            name,
        })
    }

    fn pod(&self, name: &str, cluster: &ClusterRequest, group: &NodeGroup, settings: &str) -> Pod {
        let settings = self.settings.pods_of(settings);
        let is_head = group.name == HEAD;
        let (requests, limits) = resources(group, &settings);
        let (mut volumes, mut volume_mounts) = mounts(&settings);
        volumes.push(json!({ "name": "secrets", "secret": { "secretName": name } }));
        volume_mounts.push(json!({ "name": "secrets", "mountPath": SECRETS, "readOnly": true }));
        let guard = (is_head && cluster.guard).then(|| {
            // Files that a shell user of the node's machine could read otherwise: the token, and the keys of a store.
            volumes.push(json!({ "name": "guard", "emptyDir": { "medium": "Memory", "sizeLimit": "128Mi" } }));
            volumes.push(json!({ "name": "guard-tmp", "emptyDir": {} }));
            let own = [("guard", GUARD), ("guard-tmp", "/tmp")]
                .map(|(name, path)| json!({ "name": name, "mountPath": path }));
            // What it saves from, and to.
            let mounted = volume_mounts.iter().filter(|mount| mount["name"] != "secrets").cloned();
            Guard { name: GUARD_CONTAINER, folder: GUARD, volume_mounts: mounted.chain(own).collect() }
        });
        if cluster.preparation.is_some() {
            volumes.push(json!({ "name": "preparation", "configMap": { "name": name } }));
            volume_mounts.push(json!({ "name": "preparation", "mountPath": PREPARATION, "readOnly": true }));
        }
        let mut environment = environment(name, cluster);
        if is_head && self.settings.service_type != ServiceType::ClusterIP {
            // `templates/ray-native/serving.py` reads it.
            environment.push(json!({ "name": "GPUCL_SERVE_OPEN", "value": "1" }));
        }
        let suffix = if group.gpus > 0 { "gpu" } else { "cpu" };
        let mut pod = Pod {
            image: settings
                .image
                .clone()
                .unwrap_or_else(|| format!("rayproject/ray:{}-py312-{suffix}", cluster.ray_version)),
            start: start_parameters(group, is_head),
            environment,
            environment_from: settings.secrets.iter().map(|name| json!({ "secretRef": { "name": name } })).collect(),
            labels: settings.labels.clone(),
            annotations: settings.annotations.clone(),
            placement: placement(&settings),
            requests,
            limits,
            volumes,
            volume_mounts,
            setup: cluster.preparation.as_ref().and_then(|preparation| preparation.setup.clone()),
            guard,
        };
        // KubeRay does not make pods anew when their template changes; by this label the old ones are found.
        let digest = digest::of_json(&(&cluster.ray_version, &pod));
        pod.labels
            .insert(PODS.to_owned(), digest.chars().filter(char::is_ascii_alphanumeric).take(DIGEST_LENGTH).collect());
        pod
    }
}

fn request(kind: ObjectKind, object: Value) -> ResourceRequest {
    ResourceRequest::new(kind.key(), kind.name(), object)
}

/// The object of a request as it is sent: with the labels and annotations of its tag.
pub(super) fn tagged(request: &ResourceRequest, tag: &Tag) -> Value {
    let mut object = request.settings.clone();
    for (field, values) in [("labels", labels(tag)), ("annotations", annotations(tag, &request.digest()))] {
        let own = &mut object["metadata"][field];
        if !own.is_object() {
            *own = json!({});
        }
        own.as_object_mut().into_iter().for_each(|own| own.extend(values.clone()));
    }
    object
}

/// The ConfigMap with the files of a preparation.
fn config_map(name: &str, preparation: &Preparation) -> Result<Value> {
    let size: usize = preparation.files.values().map(Vec::len).sum();
    if size > MOST_FILES {
        return Err(Error::new(ErrorKind::Usage, "put the `files` of the spec into a ConfigMap")
            .because(format!(
                "they have {} packed, and a ConfigMap holds {}",
                human::bytes(size as u64),
                human::bytes(MOST_FILES as u64)
            ))
            .hint("list what is not needed in .gitignore, or take them from `git:`, an image, a claim under `mounts:`, or a data set")
            .hint("gpucl sync SRC head:   # after `up`, to one pod"));
    }
    let (mut data, mut binary) = (Map::new(), Map::new());
    for (name, bytes) in &preparation.files {
        match std::str::from_utf8(bytes) {
            Ok(text) => data.insert(name.clone(), json!(text)),
            Err(_) => binary.insert(name.clone(), json!(STANDARD.encode(bytes))),
        };
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data, "binaryData": binary,
    }))
}

/// What a service type opens to whom, for the plan; `None` if nothing.
pub(super) fn opened(service_type: ServiceType) -> Option<String> {
    let to = match service_type {
        ServiceType::ClusterIP => return None,
        ServiceType::NodePort => "a port of every machine of the Kubernetes cluster",
        ServiceType::LoadBalancer => "an address of its own, which may be public",
    };
    Some(format!(
        "service_type {}: the dashboard, Ray's client and applications of Serve are open at {to}; Ray asks for the token \
         there, and applications for their key",
        service_type.name()
    ))
}
