//! The stage that starts the nodes of a host: its files, each node's start parameters, and the steps.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::claim::{blocks_of, has_mlflow, has_store, mlflow_port, ports_of_node, services_on, store_ports};
use super::source::Source;
use super::{BLOCK, LOOPBACK, PROCESSES, guard, mlflow, spread, store};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::StageFile;
use crate::name::Key;
use crate::playbook::{KnownError, Stage, Step, Vendor};
use crate::runtime::native::ports::StorePorts;
use crate::runtime::native::{Launch, Layout, Network, launch};
use crate::runtime::project::guard::key_on;
use crate::runtime::project::{DeployRequest, HostInput};
use crate::spec::{NodeRole, NodeSpec};
use crate::util::digest;

const START: &str = include_str!("../shell/deploy_start.sh");
const STARTED: &str = include_str!("../shell/deploy_started.sh");

/// Extra time for the stage beyond its steps' own limits.
const MARGIN: Duration = Duration::from_secs(60);

/// Placeholders for paths known only on the host; `host.py` replaces them.
const HOME: &str = "@home@";
const LINKS: &str = "@links@";
const RAY_ENV: &str = "@ray_env@";

/// The launch of a node of this host, with placeholders for the host's paths.
fn launch_of(
    request: &DeployRequest<'_>,
    host: &HostInput,
    blocks: &BTreeMap<Key, u16>,
    node: &NodeSpec,
) -> Result<Launch> {
    let layout = layout();
    let gpus = gpus_of(host, node)?;
    let address = spread::address_of(request.hosts, &host.key);
    let network = Network { ports: ports_of_node(blocks, node), address: address.clone(), gcs: gcs(request, blocks) };
    let mut launch = launch(request.scope, node, &layout, Path::new(RAY_ENV), &network, &gpus);
    // Its head may be on a host that becomes ready much later.
    let timeouts = &request.spec.timeouts;
    let wait = (timeouts.start.0 + timeouts.ready.0).as_secs().to_string();
    let launcher = layout.node_script().display().to_string();
    let behind = launch.argv.iter().position(|word| *word == launcher).map_or(launch.argv.len(), |at| at + 1);
    let own = address.into_iter().flat_map(|address| ["--gpucl-address".to_owned(), address]);
    launch.argv.splice(behind..behind, ["--gpucl-wait".to_owned(), wait].into_iter().chain(own));
    launch.environment.insert("GPUCL_HOST".to_owned(), host.tag.clone());
    for (name, value) in store::environment(request, &layout, blocks) {
        // The user's variables may name another store.
        launch.environment.entry(name.to_owned()).or_insert(value);
    }
    launch.environment.extend(mlflow::environment(request, &layout).map(|(name, value)| (name.to_owned(), value)));
    let source = Source::of(request.spec, &host.site);
    if !source.modules.is_empty() {
        // The supervisor's, which has the modules' folders behind Ray's.
        launch.environment.remove("PATH");
    }
    // The path of the environment is known only on the host.
    launch.digest = match request.spec.setup() {
        Some(setup) => digest::of_json(&(&launch.argv, &launch.environment, setup.digest())),
        None => digest::of_json(&(&launch.argv, &launch.environment)),
    };
    if !source.is_plain() {
        launch.digest = digest::of_json(&(&launch.digest, &source.modules, &source.packages));
    }
    launch.environment.insert("GPUCL_DIGEST".to_owned(), launch.digest.clone());
    Ok(launch)
}

/// Address and port of the head's GCS, as nodes reach it.
pub(super) fn gcs(request: &DeployRequest<'_>, blocks: &BTreeMap<Key, u16>) -> String {
    let port = blocks.get(&Key::head()).copied().unwrap_or_default();
    let host = request.nodes.iter().find(|node| node.role == NodeRole::Head).map(|head| &head.host);
    let address = host.and_then(|host| spread::address_of(request.hosts, host));
    spread::with_port(address.as_deref().unwrap_or(LOOPBACK), port)
}

fn layout() -> Layout {
    Layout::new(Path::new(HOME), Path::new(LINKS))
}

/// The UUIDs of the GPUs that a node owns.
pub(super) fn gpus_of(host: &HostInput, node: &NodeSpec) -> Result<Vec<String>> {
    let Some(first) = node.first_gpu else { return Ok(Vec::new()) };
    let doing = || Error::new(ErrorKind::Host, format!("give {} its {} GPUs", node.key.display_name(), node.gpus));
    let own = host
        .facts
        .gpus
        .get(first as usize..(first + node.gpus) as usize)
        .ok_or_else(|| doing().because(format!("{} has {}", host.key.display_name(), host.facts.gpus.len())))?;
    if own.iter().any(|gpu| gpu.vendor == Vendor::Amd) {
        return Err(doing()
            .because("the runtime `native` can assign only NVIDIA GPUs to a node")
            .hint("use `runtime: docker` for AMD GPUs; or set `gpu: declared`, and tasks choose for themselves"));
    }
    let uuids: Option<Vec<String>> = own.iter().map(|gpu| gpu.uuid.clone()).collect();
    uuids.ok_or_else(|| {
        let name = host.key.display_name();
        doing()
            .because(format!("the driver of {name} does not report a UUID for each"))
            .hint(format!("check its driver: gpucl exec --host {name} -- nvidia-smi -L"))
            .hint("the runtime `native` installs no driver, since that needs root; `runtime: docker` does")
    })
}

/// The input file of the host's supervisor, and the digest of each node.
fn nodes_file(
    request: &DeployRequest<'_>,
    host: &HostInput,
    nodes: &[NodeSpec],
) -> Result<(Value, BTreeMap<Key, String>)> {
    let layout = layout();
    let mut launches = Vec::new();
    let blocks = blocks_of(request);
    let (mut ranges, mut open, mut digests) = (Vec::new(), Vec::new(), BTreeMap::new());
    let address = spread::address_of(request.hosts, &host.key);
    for node in nodes {
        let launch = launch_of(request, host, &blocks, node)?;
        let ports = ports_of_node(&blocks, node);
        digests.insert(node.key.clone(), launch.digest.clone());
        ranges.push([ports.base, ports.base + BLOCK - 1]);
        let answers = match (&address, node.role) {
            (Some(address), role) => {
                open.extend(spread::open_ports(role, ports));
                spread::answers(role, ports, address)
            }
            (None, NodeRole::Head) => json!([ports.gcs(), ports.dashboard, ports.client(), ports.agent_http()]),
            (None, NodeRole::Worker) => json!([ports.node_manager(), ports.agent_http()]),
        };
        launches.push(json!({
            "key": node.key,
            "name": node.key.display_name(),
            "role": node.role,
            "tag": launch.tag,
            "digest": launch.digest,
            "short": layout.real_temp_dir(&node.key).file_name().map(|name| name.to_string_lossy().into_owned()),
            "argv": launch.argv,
            "environment": launch.environment,
            "log": launch.log,
            "answers": answers,
        }));
    }
    if let Some(launch) = store::launch(request, host, &layout, &blocks)? {
        let base = store_ports(&blocks).base;
        ranges.push([base, base + StorePorts::COUNT - 1]);
        launches.push(launch);
    }
    if let Some(launch) = mlflow::launch(request, host, &layout, &blocks)? {
        ranges.push([mlflow_port(&blocks); 2]);
        launches.push(launch);
    }
    let guard = guard::launch(request, host, &layout, &blocks, gcs(request, &blocks))?;
    if let (Some(guard), Some(key)) = (&guard, key_on(request, host)) {
        digests.insert(key, guard.launch["digest"].as_str().unwrap_or_default().to_owned());
        launches.push(guard.launch.clone());
    }
    let mut file = json!({
        "v": 1,
        "tag": host.tag,
        "ports": ranges,
        "grace": request.spec.timeouts.stop.0.as_secs(),
        "nodes": launches,
    });
    if let Some(guard) = guard {
        file["files"] = json!({"guard.json": guard.settings});
    }
    if let Some(address) = address {
        file["network"] = json!({"address": address, "ports": open});
    }
    Ok((file, digests))
}

/// The stage that starts the nodes of a host, and the digest of each node.
pub(super) fn deploy(
    request: &DeployRequest<'_>,
    host: &HostInput,
    nodes: &[NodeSpec],
) -> Result<(Stage, BTreeMap<Key, String>)> {
    let name = host.key.display_name();
    let doing = || format!("render the nodes of {name}");
    let mut files = Vec::new();
    for (file, template) in [
        ("reaper.py", "templates/ray-native/reaper.py"),
        ("node.py", "templates/ray-native/node.py"),
        ("worker.py", "templates/ray-native/worker.py"),
        ("serving.py", "templates/ray-native/serving.py"),
        ("agent.py", "templates/ray-native/agent.py"),
        ("inner.py", "templates/ray-native/inner.py"),
        ("reachable.py", "templates/ray-native/reachable.py"),
        ("lifecycle.py", "templates/ray-native/lifecycle.py"),
        ("host.py", "templates/ray-native/host.py"),
        ("probe.py", "templates/ray-native/probe.py"),
        // The HTTP checks of a cluster are the same as in containers.
        ("cluster.py", "templates/ray-compose/probe.py"),
    ] {
        let (bytes, _) = request.library.read(template)?;
        files.push(StageFile { path: file.to_owned(), mode: 0o600, bytes });
    }
    let token = request.secrets.ray_token.expose_secret().as_bytes().to_vec();
    files.push(StageFile { path: "secrets/ray_token".to_owned(), mode: 0o600, bytes: token });
    let blocks = blocks_of(request);
    files.extend(store::files(request, host)?);
    files.extend(mlflow::files(request, host, &blocks)?);
    files.extend(guard::files(request, host)?);
    let (file, digests) = nodes_file(request, host, nodes)?;
    let what = serde_json::to_vec_pretty(&file).doing(ErrorKind::Internal, doing)?;
    files.push(StageFile { path: "nodes.json".to_owned(), mode: 0o600, bytes: what });
    let config = files.iter().map(|file| (&file.path, digest::short(&file.bytes))).collect::<Vec<_>>();
    let (services, guard) = (services_on(request, host), key_on(request, host));
    let keys: Vec<&str> = nodes.iter().map(|node| &node.key).chain(&services).chain(&guard).map(Key::as_str).collect();
    let timeouts = &request.spec.timeouts;
    // Another host, perhaps the head's, can become ready much later.
    let others = if request.spec.hosts.len() > 1 { timeouts.ready.0 } else { Duration::ZERO };
    let limit = timeouts.start.0 + others;
    let variables = BTreeMap::from([
        ("tag".to_owned(), host.tag.clone()),
        ("config".to_owned(), digest::of_json(&config)),
        ("keys".to_owned(), keys.join(" ")),
        ("stop_limit".to_owned(), timeouts.stop.0.as_secs().to_string()),
    ]);
    let modules = Source::of(request.spec, &host.site).environment();
    let within = |script: &str| format!("home=$gpucl_home\n{modules}{PROCESSES}{script}");
    let mut affected_paths: Vec<String> =
        nodes.iter().map(|node| format!("process {}", node.key.display_name())).collect();
    if has_store(request, host) {
        affected_paths.push("process object-store".to_owned());
        affected_paths.push(format!("port {LOOPBACK}:{}", store_ports(&blocks).s3()));
    }
    if has_mlflow(request, host) {
        affected_paths.push("process mlflow".to_owned());
        affected_paths.push(format!("port {LOOPBACK}:{}", mlflow_port(&blocks)));
    }
    affected_paths.extend(guard.map(|guard| format!("process {}", guard.display_name())));
    let is_head = nodes.iter().any(|node| node.role == NodeRole::Head);
    if is_head {
        let head = ports_of_node(&blocks, &nodes[0]);
        affected_paths.push(format!("port {LOOPBACK}:{}", head.dashboard));
    }
    if let Some(address) = spread::address_of(request.hosts, &host.key) {
        // Each node's block, of which Ray opens some.
        let bases = nodes.iter().map(|node| ports_of_node(&blocks, node).base);
        affected_paths.extend(bases.map(|base| format!("ports {base} to {} of {address}", base + BLOCK - 1)));
    }
    let start = Step {
        name: "start the nodes".to_owned(),
        unless: Some(within(STARTED)),
        run: within(START),
        timeout: Some(Duration::from_secs(120) + timeouts.stop.0),
        affected_paths,
        hint: Some(format!("its log: gpucl logs supervisor; what runs: gpucl exec --host {name} -- ps -ef")),
        ..Step::default()
    };
    let wait = Step {
        name: "wait until all nodes answer".to_owned(),
        run: within(
            "ray_env=$(sed -n 's/^ray_env //p' \"$home/prepared/prepare\")\n\
             exec \"$ray_env/bin/python\" -I -B \"$home/host.py\" wait \"$home\"\n",
        ),
        timeout: Some(limit),
        hint: Some(format!("gpucl logs -c {}   # the output of all its nodes", request.scope.cluster)),
        errors: wait_errors(),
        ..Step::default()
    };
    let buckets = store::step(request, host, &blocks)?.map(|step| Step { run: within(&step.run), ..step });
    let more = buckets.as_ref().and_then(|step| step.timeout).unwrap_or_default();
    let timeout = timeouts.prepare.0 + limit + more + MARGIN;
    let steps = [Some(start), Some(wait), buckets].into_iter().flatten().collect();
    Ok((Stage { name: "deploy".to_owned(), steps, files, variables, timeout, wants_facts: false }, digests))
}

fn wait_errors() -> Vec<KnownError> {
    let known = |matches: &str, says: &str, hint: Option<&str>| KnownError {
        matches: matches.to_owned(),
        says: says.to_owned(),
        hint: hint.map(str::to_owned),
        retry: false,
    };
    let slow = Some("more time for slow hosts: `timeouts: {start: 10m}` in the spec");
    vec![
        known("no answer in time from", "{line} (`timeouts.start`)", slow),
        KnownError {
            retry: true,
            ..known(
                "address already in use|Address already in use|Failed to bind|is already in use",
                "a port that a node needs is in use on the host: {line}",
                Some("run `gpucl up` again: it chooses free ports"),
            )
        },
        known("Version mismatch", "head and workers have different versions of Ray or Python: {line}", None),
        known("No space left on device", "the host's disk is full", None),
        known(
            "can't start new thread|pthread_create failed|thread: Resource temporarily unavailable|BlockingIOError.*temporarily unavailable",
            "the host starts no more processes or threads for this user: {line}",
            Some(
                "raise the limit: `ulimit -u` of the login, or `pids.max` of its cgroup; a cluster of one worker has some 500",
            ),
        ),
        known(
            "Cannot allocate memory|No space left on /dev/shm|object store memory",
            "the host has too little memory: {line}",
            Some("give each node less: `ray: {workers: {object_store_memory: 100MiB, memory: 500MiB}}`"),
        ),
    ]
}
