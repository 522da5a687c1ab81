//! The stage `deploy` of a host: gets the images, starts the project, and waits until it is healthy.

use std::collections::BTreeMap;
use std::time::Duration;

use super::checks;
use super::guard;
use super::mounts;
use super::project::Project;
use super::{closed_table, containers_name};
use crate::host::StageFile;
use crate::name::Key;
use crate::playbook::{KnownError, Stage, Step};
use crate::render::quote;
use crate::runtime::project::guard::key_on;
use crate::spec::NodeSpec;
use crate::util::digest;

/// Containers of various users read `lib`, and `targets`, which only the head's host has.
const FOLDERS_EXIST: &str =
    "[ -d data ] && [ -k dashboards ] && [ -z \"$(find lib targets -maxdepth 0 ! -perm 755 2>/dev/null)\" ]";
const FOLDERS: &str =
    "mkdir -p dashboards data\nchmod 1777 dashboards\nchmod 755 lib\n[ ! -d targets ] || chmod 755 targets";
const START: &str = include_str!("shell/deploy_start.sh");
const STARTED: &str = include_str!("shell/deploy_started.sh");
const WAIT: &str = include_str!("shell/deploy_wait.sh");
const WORKSPACE: &str = include_str!("shell/deploy_workspace.sh");
/// Extra time for the waiting step beyond its own limit, to show the logs of slow containers.
const MARGIN: Duration = Duration::from_secs(90);

/// The stage that deploys this project.
/// `client` is the client's check to be run as soon as the head answers.
pub(super) fn deploy(
    project: &Project<'_>,
    files: Vec<StageFile>,
    nodes: &[NodeSpec],
    client: Option<String>,
) -> Stage {
    let request = project.cluster.request;
    let timeouts = &request.spec.timeouts;
    let mut steps = vec![Step {
        name: "create the containers' folders".to_owned(),
        // Ray runs as the image's user; the parent folder belongs to root only.
        unless: Some(FOLDERS_EXIST.to_owned()),
        run: FOLDERS.to_owned(),
        ..Step::default()
    }];
    steps.extend(guard::folder(project.cluster, project.host));
    steps.extend(mounts::check(request.spec, &project.host.key.display_name()));
    if !project.images.pulls.is_empty() {
        steps.push(pull(&project.images.pulls));
    }
    let containers = containers(project, nodes);
    let limit = timeouts.start.0 + timeouts.ready.0;
    let mut variables = BTreeMap::from([
        ("project".to_owned(), project.host.tag.clone()),
        ("containers".to_owned(), containers.join(" ")),
        ("files".to_owned(), options(&files)),
        ("config".to_owned(), digest_of(&files)),
        ("head".to_owned(), String::new()),
        ("services".to_owned(), String::new()),
        ("service_containers".to_owned(), String::new()),
        ("workspace_of".to_owned(), String::new()),
        ("data_of".to_owned(), nodes.first().map(|node| request.scope.tag(&node.key).to_string()).unwrap_or_default()),
        ("volumes_at".to_owned(), mounts::volumes_at(request.spec)),
        ("closed".to_owned(), closed_table(&project.host.tag)),
        ("bridge".to_owned(), if project.cluster.bridge { containers_name(&project.host.tag) } else { String::new() }),
        ("limit".to_owned(), limit.as_secs().to_string()),
    ]);
    if project.is_head {
        let tag = |key: &Key| request.scope.tag(key).to_string();
        let (services, of_services) = services(project, limit);
        variables.insert("head".to_owned(), tag(&Key::head()));
        variables.insert("services".to_owned(), services);
        variables.insert("service_containers".to_owned(), of_services.join(" "));
        let jupyter = request.spec.services().jupyter.settings();
        match jupyter.map(|jupyter| jupyter.workspace) {
            Some(None) => _ = variables.insert("workspace_of".to_owned(), tag(&Key::service("jupyter"))),
            Some(Some(folder)) => steps.insert(0, workspace(&folder, &project.host.key.display_name())),
            None => {}
        }
    }
    steps.push(Step {
        name: "start the containers".to_owned(),
        unless: Some(STARTED.to_owned()),
        run: START.to_owned(),
        timeout: Some(Duration::from_secs(600)),
        hint: Some(format!(
            "check the project: gpucl exec --host {} --root -- docker ps -a",
            project.host.key.display_name()
        )),
        errors: start_errors(),
        ..Step::default()
    });
    steps.push(Step {
        name: "wait until all containers are healthy".to_owned(),
        run: format!("client_check() {{\n{}\n}}\n{WAIT}", client.as_deref().unwrap_or(":")),
        timeout: Some(limit + MARGIN),
        hint: Some("more time for slow hosts: `timeouts: {start: 10m}` in the spec".to_owned()),
        errors: wait_errors(),
        ..Step::default()
    });
    let timeout = timeouts.prepare.0 + limit + MARGIN;
    Stage { name: "deploy".to_owned(), steps, files, variables, timeout, wants_facts: false }
}

/// The names of gpucl's containers on this host.
fn containers(project: &Project<'_>, nodes: &[NodeSpec]) -> Vec<String> {
    let cluster = project.cluster;
    let mut keys: Vec<Key> = nodes.iter().map(|node| node.key.clone()).collect();
    if project.is_head {
        if cluster.store.as_ref().is_some_and(|store| store.external.is_none()) {
            keys.push(Key::service("objectstore"));
        }
        if cluster.has_prometheus {
            keys.push(Key::service("prometheus"));
        }
        if cluster.has_grafana {
            keys.push(Key::service("grafana"));
        }
        if project.has_jupyter() {
            keys.push(Key::service("jupyter"));
        }
        if cluster.has_mlflow {
            keys.push(Key::mlflow());
        }
    }
    keys.extend(key_on(cluster.request, project.host));
    if cluster.has_prometheus {
        keys.push(super::view::exporter_key(cluster.request, project.host));
    }
    keys.iter().map(|key| cluster.request.scope.tag(key).to_string()).collect()
}

/// The services that the head waits for, as input to its probe, and their containers.
fn services(project: &Project<'_>, limit: Duration) -> (String, Vec<String>) {
    let cluster = project.cluster;
    let at = &cluster.at;
    let tag = |kind: &str| cluster.request.scope.tag(&Key::service(kind)).to_string();
    let mut addresses = BTreeMap::from([("dashboard", format!("{}/api/gcs_healthz", at.dashboard))]);
    let mut containers = Vec::new();
    if cluster.has_prometheus {
        addresses.insert("prometheus", format!("{}/-/ready", at.prometheus));
        containers.push(tag("prometheus"));
    }
    if cluster.has_grafana {
        addresses.insert("grafana", format!("{}/api/health", at.grafana));
        containers.push(tag("grafana"));
    }
    if project.has_jupyter() {
        addresses.insert("jupyter", format!("{}/api", at.jupyter));
    }
    if cluster.has_mlflow {
        addresses.insert("mlflow", format!("{}/health", at.mlflow));
        containers.push(tag("mlflow"));
    }
    if cluster.store.as_ref().is_some_and(|store| store.external.is_none()) {
        addresses.insert("object store", format!("{}/minio/health/live", at.store));
        containers.push(tag("objectstore"));
    }
    let want = serde_json::json!({
        "timeout_s": limit.as_secs(),
        "addresses": addresses,
        "store": checks::store(cluster),
    });
    (want.to_string(), containers)
}

fn pull(images: &[String]) -> Step {
    Step {
        name: "pull missing images".to_owned(),
        unless: Some("for image in $images; do docker image inspect \"$image\" >/dev/null 2>&1; done".to_owned()),
        run: "for image in $images; do\n    docker image inspect \"$image\" >/dev/null 2>&1 && continue\n    echo \"pulling $image\"\n    \
              docker pull -q \"$image\" || { echo \"the image $image cannot be pulled\"; exit 1; }\ndone"
            .to_owned(),
        variables: BTreeMap::from([("images".to_owned(), images.join(" "))]),
        retry: 1,
        timeout: Some(Duration::from_secs(3600)),
        hint: Some(
            "choose another image under `images:` in the spec, by tag or digest, or a mirror under `playbooks: {docker: {registry_mirror: …}}`"
                .to_owned(),
        ),
        errors: vec![
            KnownError::new("no space left on device", "the host's disk is full", Some("free some space, or use a host with a larger disk")),
            KnownError::new("manifest unknown|not found|pull access denied", "{line}", None),
        ],
        ..Step::default()
    }
}

/// Checks that Jupyter's folder belongs to its user, before anything is started.
fn workspace(folder: &str, host: &str) -> Step {
    let folder_word = quote(folder);
    Step {
        name: "check Jupyter's workspace".to_owned(),
        unless: Some(
            "[ -d \"$workspace\" ] && [ \"$(stat -L -c %u \"$workspace\")\" = 1000 ] && [ ! -e \"$workspace/.ssh\" ]"
                .to_owned(),
        ),
        run: WORKSPACE.to_owned(),
        variables: BTreeMap::from([("workspace".to_owned(), folder.to_owned())]),
        timeout: Some(Duration::from_secs(30)),
        hint: Some(format!(
            "create a folder for it: gpucl exec --host {host} --root -- install -d -o 1000 -g 1000 {folder_word}"
        )),
        errors: vec![KnownError::new("workspace: ", "{line}", None)],
        ..Step::default()
    }
}

fn start_errors() -> Vec<KnownError> {
    vec![
        KnownError::new(
            "port is already allocated|address already in use|failed to bind host port",
            "a port that the cluster needs is in use on the host: {line}",
            Some("end the process that listens there, or run `gpucl up` again: it chooses free ports"),
        ),
        KnownError::new(
            "unresolvable CDI devices|CDI device injection failed|could not select device driver",
            "the engine does not know the GPU: {line}",
            Some("check the driver and its container toolkit: nvidia-ctk cdi list"),
        ),
        KnownError::new(
            "bind source path does not exist",
            "{line}",
            Some("create the folder on the host, or leave `workspace` or the mount out"),
        ),
        KnownError::new("no space left on device", "the host's disk is full", None),
        KnownError::new(
            "are not set: there is no nftables table",
            "{line}",
            Some(
                "run `gpucl up` again, which sets them; if they disappear again, find out what flushes the nftables rules \
                 on the host",
            ),
        ),
        KnownError::new(
            "Cannot connect to the Docker daemon",
            "the host's Docker does not answer",
            Some("sudo systemctl status docker"),
        ),
        KnownError::new("pull access denied|manifest unknown", "an image cannot be pulled: {line}", None),
        KnownError::new(
            "yaml:|services.* must be|additional properties",
            "compose rejects a file of the project: {line}",
            None,
        ),
    ]
}

fn wait_errors() -> Vec<KnownError> {
    vec![
        KnownError::new(
            "refuses this node's token",
            "a worker's token differs from the head's: {line}",
            Some("give all nodes the cluster's token: gpucl stop, then gpucl up"),
        ),
        KnownError::new(
            "Version mismatch",
            "head and workers have different versions of Ray or Python: {line}",
            Some("use images of one version: `images:` in the spec"),
        ),
        KnownError::new("the bucket .* cannot be made", "{line}", None),
    ]
}

/// The `-f` options for the project's files, gpucl's first.
fn options(files: &[StageFile]) -> String {
    let is_compose = |path: &str| path == "compose/compose.yaml" || path.starts_with("compose/user-");
    let paths = files.iter().map(|file| file.path.as_str()).filter(|path| is_compose(path));
    paths.map(|path| format!("-f {path}")).collect::<Vec<_>>().join(" ")
}

/// The digest of the project's files, without `lib/`, whose current contents containers always see.
fn digest_of(files: &[StageFile]) -> String {
    let of: Vec<_> = files
        .iter()
        .filter(|file| !file.path.starts_with("lib/"))
        .map(|file| (&file.path, digest::short(&file.bytes)))
        .collect();
    digest::of_json(&of)
}
