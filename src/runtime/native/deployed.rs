//! The runtime `native` on hosts that are reached by SSH: nodes are processes of the user that is logged in as, and neither root
//! nor anything that is installed for all is needed.
//!
//! A supervisor on each host (`templates/ray-native/host.py`) does there what the agent does on this machine. All of Ray stays on
//! the loopback: without root there is no firewall that could close what leaves it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::{HeadAddress, Launch, Layout, NodePorts, launch, resource_of};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::host::Account;
use crate::name::{Key, Scope};
use crate::plan::{NodeRole, NodeSpec};
use crate::playbook::{self, KnownError, Stage, StageFile, Step, Vendor};
use crate::render::{quote, quote_path};
use crate::runtime::compose::look_inside;
use crate::runtime::project::{
    CleanOptions, DeployRequest, Deployment, HostInput, HostPorts, LogRequest, Others, Page, PrepareRequest,
    ProjectRuntime, nodes_of,
};
use crate::spec::Spec;
use crate::util::{digest, near};

const PROCESSES: &str = include_str!("shell/processes.sh");
const STOP: &str = include_str!("shell/stop.sh");
const LOOK: &str = include_str!("shell/look.sh");
const CLEAN: &str = include_str!("shell/clean.sh");
const LOGS: &str = include_str!("shell/logs.sh");
const START: &str = include_str!("shell/deploy_start.sh");
const STARTED: &str = include_str!("shell/deploy_started.sh");
const CHECKS: &str = include_str!("shell/checks.sh");

/// The address that all of Ray is at.
const LOOPBACK: &str = "127.0.0.1";
/// The ports of a host, and of each of its nodes.
const REGION: u16 = 2_000;
const BLOCK: u16 = 100;
/// Where the ports of hosts begin: below those that Linux hands out by itself (32768 and up).
const REGIONS: std::ops::Range<u16> = 5..16;
/// How long a node may take to end by itself, in seconds, before it is ended.
const GRACE: u32 = 10;
/// How long the step that waits may take beyond its own limit, in which it shows the logs of what is slow.
const MARGIN: Duration = Duration::from_secs(60);
/// How long a look at the cluster from inside may take, in seconds.
const CHECK_LIMIT: u32 = 100;

/// The playbook that makes Ray's environment.
const PLAYBOOK: &str = "ray-native";

/// What stands for the places that only the host knows, until `host.py` puts them in.
const HOME: &str = "@home@";
const LINKS: &str = "@links@";
const RAY_ENV: &str = "@ray_env@";

/// Nodes are processes of the user that is logged in as.
#[derive(Debug, Clone, Copy)]
pub struct Deployed;

impl ProjectRuntime for Deployed {
    fn account(&self) -> Account {
        Account::User
    }

    fn node_is(&self) -> &'static str {
        "process"
    }

    fn traces(&self) -> &'static str {
        "process, link or file"
    }

    fn folders(&self) -> &'static str {
        "~/.gpucl"
    }

    fn choose_ports(&self, tag: &str, taken: &BTreeSet<u16>) -> HostPorts {
        // Where to begin depends on the tag, so that hosts of several clusters on one machine rarely meet at all.
        let span = REGIONS.end - REGIONS.start;
        let seed = u16::from_str_radix(&digest::short(tag.as_bytes())[..4], 16).unwrap_or_default() % span;
        let regions = (0..span).map(|offset| (REGIONS.start + (seed + offset) % span) * REGION);
        let is_clear = |from: &u16| taken.range(*from..*from + REGION).next().is_none();
        let ray = regions.clone().find(is_clear).or(regions.clone().next()).unwrap_or(REGIONS.start * REGION);
        let head = NodePorts { base: ray, dashboard: ray + 1 };
        let other = head.dashboard;
        HostPorts {
            dashboard: head.dashboard,
            client: head.client(),
            object_store: other,
            console: other,
            prometheus: other,
            grafana: other,
            jupyter: other,
            ray,
        }
    }

    fn ray_ports(&self, ports: HostPorts, nodes: &[NodeSpec], _is_head: bool, _hosts: usize) -> Vec<(u16, u16)> {
        let count = u16::try_from(nodes.len()).unwrap_or(u16::MAX).clamp(1, REGION / BLOCK);
        vec![(ports.ray, ports.ray + count * BLOCK - 1)]
    }

    fn preparation(&self, request: &PrepareRequest<'_>) -> Result<Stage> {
        let PrepareRequest { spec, host, library, .. } = request;
        on_one_machine(request)?;
        if let Some(odd) = spec.playbooks.keys().find(|name| *name != PLAYBOOK) {
            let error = Error::new(ErrorKind::Spec, format!("read `playbooks.{odd}`"))
                .because(format!("the runtime `native` has no playbook `{odd}`; it has {PLAYBOOK}"));
            return Err(match near::nearest(odd, [PLAYBOOK]) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error.hint("leave it out, or say `runtime: docker`"),
            });
        }
        let here = nodes_of(request.nodes, &host.key).len();
        if here > usize::from(REGION / BLOCK) {
            return Err(Error::new(ErrorKind::Spec, format!("lay out the nodes of {}", host.key.display_name()))
                .because(format!("they are {here}, and a host of the runtime `native` has at most {}", REGION / BLOCK))
                .hint("fewer workers with more CPUs each, or `runtime: docker`"));
        }
        let mut variables = spec.playbooks.get(PLAYBOOK).cloned().unwrap_or_default();
        for (name, value) in [("ray_version", spec.ray.version.as_str()), ("environments", "")] {
            if variables.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(Error::new(ErrorKind::Spec, format!("read `playbooks.{PLAYBOOK}`"))
                    .because(format!("gpucl sets its variable `{name}` itself")));
            }
        }
        playbook::load(library, PLAYBOOK)?.stage("prepare", &variables, spec.timeouts.prepare.0)
    }

    fn opens_ports(&self) -> bool {
        false
    }

    fn guard(&self, _request: &PrepareRequest<'_>) -> Result<Stage> {
        Err(Error::new(ErrorKind::Internal, "open ports").because("the runtime `native` stays on the loopback"))
    }

    fn deployment(&self, request: &DeployRequest<'_>, host: &Key) -> Result<Deployment> {
        let input = request.hosts.iter().find(|input| input.key == *host).ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("render the project of {}", host.display_name()))
                .because("it is none of the hosts")
        })?;
        let nodes = nodes_of(request.nodes, host);
        let checks = checks(request, input, &nodes)?;
        let mut stage = deploy(request, input, &nodes)?;
        if request.spec.hosts.len() < 2 {
            // Of several hosts each is looked at once all of them are there.
            stage.steps.push(look_inside(&checks));
        }
        Ok(Deployment { host: host.clone(), project: input.tag.clone(), nodes, stage, checks })
    }

    fn pages(&self, _spec: &Spec, head_host: &Key, ports: HostPorts) -> Vec<Page> {
        vec![Page {
            name: "dashboard".to_owned(),
            host: head_host.clone(),
            port: ports.dashboard,
            secret: "ray_token".to_owned(),
            user: None,
            user_secret: None,
        }]
    }

    fn look_script(&self, tag: &str) -> String {
        format!("{}{LOOK}", self.header(tag))
    }

    fn stop_script(&self, tag: &str) -> String {
        format!("{}{STOP}if stop_project; then echo ::stopped; fi\n", self.header(tag))
    }

    /// Of data volumes there are none. What was made for Ray stays, as clusters of this user share it, unless it is to be purged.
    fn clean_script(&self, tag: &str, options: CleanOptions) -> String {
        let purge = if options.purge { "1" } else { "" };
        format!("{}purge={purge}\n{STOP}{CLEAN}clean\n", self.header(tag))
    }

    fn logs_script(&self, tag: &str, request: &LogRequest) -> String {
        let lines = request.tail.map_or_else(|| "+1".to_owned(), |tail| tail.to_string());
        request.script(&format!("{}lines={lines}\n", self.header(tag)), LOGS)
    }
}

impl Deployed {
    /// What every script of a tag begins with.
    fn header(self, tag: &str) -> String {
        let home = quote_path(&self.home(tag));
        format!("tag={}\nhome={home}\nlink={}\ngrace={GRACE}\n{PROCESSES}", quote(tag), link_of(tag))
    }
}

/// The name of the short link of a host, as [`Layout`] has it.
fn link_of(tag: &str) -> String {
    digest::short(tag.as_bytes())[..6].to_owned()
}

/// Refuses hosts that would have to reach each other over a network: what Ray opens to them it opens to all.
fn on_one_machine(request: &PrepareRequest<'_>) -> Result<()> {
    let own = request.host;
    let is_near = |other: &HostInput| other.address == LOOPBACK && other.facts.boot_id == own.facts.boot_id;
    if request.others == Others::None || request.hosts.iter().all(is_near) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, format!("prepare {} for the runtime `native`", own.key.display_name()))
        .because("its hosts are several machines, and without root nothing can close Ray's ports to all others")
        .hint("`runtime: docker` sets a firewall; or take a single host"))
}

/// What a node of this host is started with; the places of the host stand in it by their names.
fn launch_of(request: &DeployRequest<'_>, host: &HostInput, index: usize, node: &NodeSpec) -> Result<Launch> {
    let layout = layout_of(request.scope, &host.key);
    let base = host.ports.ray + u16::try_from(index).unwrap_or(u16::MAX).saturating_mul(BLOCK);
    let ports = NodePorts { base, dashboard: base + 1 };
    let head = request.hosts.iter().find(|host| host.key == Key::host(0)).unwrap_or(host);
    let gpus = gpus_of(host, node)?;
    let head = HeadAddress { gcs: head.ports.ray };
    let mut launch = launch(request.scope, node, &layout, Path::new(RAY_ENV), ports, head, &gpus);
    // Its head may be on a host that comes much later.
    let timeouts = &request.spec.timeouts;
    let wait = (timeouts.start.0 + timeouts.ready.0).as_secs().to_string();
    launch.argv.splice(2..2, ["--gpucl-wait".to_owned(), wait]);
    launch.environment.insert("GPUCL_HOST".to_owned(), host.tag.clone());
    launch.digest = digest::of_json(&(&launch.argv, &launch.environment));
    launch.environment.insert("GPUCL_DIGEST".to_owned(), launch.digest.clone());
    Ok(launch)
}

fn layout_of(scope: &Scope, host: &Key) -> Layout {
    Layout::new(Path::new(HOME), &scope.tag(host), Path::new(LINKS))
}

/// The GPUs that a node owns, by their UUIDs.
fn gpus_of(host: &HostInput, node: &NodeSpec) -> Result<Vec<String>> {
    let Some(first) = node.first_gpu else { return Ok(Vec::new()) };
    let doing = || Error::new(ErrorKind::Host, format!("give {} its {} GPUs", node.key.display_name(), node.gpus));
    let own = host
        .facts
        .gpus
        .get(first as usize..(first + node.gpus) as usize)
        .ok_or_else(|| doing().because(format!("{} has {}", host.key.display_name(), host.facts.gpus.len())))?;
    if own.iter().any(|gpu| gpu.vendor == Vendor::Amd) {
        return Err(doing()
            .because("the runtime `native` can give NVIDIA's alone to a node")
            .hint("`runtime: docker` can give AMD's; or say `gpu: declared`, and tasks choose for themselves"));
    }
    let uuids: Option<Vec<String>> = own.iter().map(|gpu| gpu.uuid.clone()).collect();
    uuids.ok_or_else(|| {
        let name = host.key.display_name();
        doing()
            .because(format!("the driver of {name} tells no UUID of each"))
            .hint(format!("look at its driver: gpucl exec --host {name} -- nvidia-smi -L"))
            .hint("the runtime `native` installs no driver, since that takes root; `runtime: docker` does")
    })
}

/// What the host's supervisor is given.
fn nodes_file(request: &DeployRequest<'_>, host: &HostInput, nodes: &[NodeSpec]) -> Result<Value> {
    let layout = layout_of(request.scope, &host.key);
    let mut launches = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let launch = launch_of(request, host, index, node)?;
        let ports = NodePorts { base: host.ports.ray + u16::try_from(index).unwrap_or(u16::MAX) * BLOCK, dashboard: 0 };
        let answers = match node.role {
            NodeRole::Head => vec![ports.gcs(), host.ports.dashboard, ports.client(), ports.agent_http()],
            NodeRole::Worker => vec![ports.node_manager(), ports.agent_http()],
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
    let last = host.ports.ray + REGION - 1;
    Ok(json!({
        "v": 1,
        "tag": host.tag,
        "link": layout.link(),
        "ports": [host.ports.ray, last],
        "nodes": launches,
    }))
}

/// The stage that brings the nodes of a host up.
fn deploy(request: &DeployRequest<'_>, host: &HostInput, nodes: &[NodeSpec]) -> Result<Stage> {
    let name = host.key.display_name();
    let doing = || format!("render the nodes of {name}");
    let mut files = Vec::new();
    for (file, template) in [
        ("node.py", "templates/ray-native/node.py"),
        ("host.py", "templates/ray-native/host.py"),
        ("probe.py", "templates/ray-native/probe.py"),
        // What a cluster shows by HTTP is looked at as in containers.
        ("cluster.py", "templates/ray-compose/probe.py"),
    ] {
        let (bytes, _) = request.library.read(template)?;
        files.push(StageFile { path: file.to_owned(), mode: 0o600, bytes });
    }
    let token = request.secrets.ray_token.expose_secret().as_bytes().to_vec();
    files.push(StageFile { path: "secrets/ray_token".to_owned(), mode: 0o600, bytes: token });
    let what = serde_json::to_vec_pretty(&nodes_file(request, host, nodes)?).doing(ErrorKind::Internal, doing)?;
    files.push(StageFile { path: "nodes.json".to_owned(), mode: 0o600, bytes: what });
    let config = files.iter().map(|file| (&file.path, digest::short(&file.bytes))).collect::<Vec<_>>();
    let keys: Vec<&str> = nodes.iter().map(|node| node.key.as_str()).collect();
    let timeouts = &request.spec.timeouts;
    let limit = timeouts.start.0 + timeouts.ready.0;
    let variables = BTreeMap::from([
        ("tag".to_owned(), host.tag.clone()),
        ("config".to_owned(), digest::of_json(&config)),
        ("keys".to_owned(), keys.join(" ")),
        ("limit".to_owned(), limit.as_secs().to_string()),
    ]);
    let within = |script: &str| format!("home=$gpucl_home\n{PROCESSES}{script}");
    let mut touches: Vec<String> = nodes.iter().map(|node| format!("process {}", node.key.display_name())).collect();
    let is_head = nodes.iter().any(|node| node.role == NodeRole::Head);
    if is_head {
        touches.push(format!("port {LOOPBACK}:{}", host.ports.dashboard));
    }
    let start = Step {
        name: "start the nodes".to_owned(),
        unless: Some(within(STARTED)),
        run: within(START),
        timeout: Some(Duration::from_secs(120)),
        touches,
        hint: Some(format!("its log: gpucl logs supervisor; what runs: gpucl exec --host {name} -- ps -ef")),
        ..Step::default()
    };
    let wait = Step {
        name: "wait until all nodes answer".to_owned(),
        run: within(
            "ray_env=$(sed -n 's/^ray_env //p' \"$home/prepared/prepare\")\n\
             exec \"$ray_env/bin/python\" -I -B \"$home/host.py\" wait \"$home\" \"$limit\"\n",
        ),
        timeout: Some(limit + MARGIN),
        hint: Some("more time for slow hosts: `timeouts: {start: 10m}` in the spec".to_owned()),
        errors: wait_errors(),
        ..Step::default()
    };
    let timeout = timeouts.prepare.0 + limit + MARGIN;
    Ok(Stage { name: "deploy".to_owned(), steps: vec![start, wait], files, variables, timeout })
}

fn wait_errors() -> Vec<KnownError> {
    let known = |matches: &str, says: &str, hint: Option<&str>| KnownError {
        matches: matches.to_owned(),
        says: says.to_owned(),
        hint: hint.map(str::to_owned),
    };
    vec![
        known(
            "address already in use|Address already in use|Failed to bind|is already in use",
            "a port that a node needs is in use on the host: {line}",
            Some("run `gpucl up` again: it chooses ports that are free"),
        ),
        known("Version mismatch", "head and workers have different versions of Ray or Python: {line}", None),
        known("No space left on device", "the host's disk is full", None),
        known(
            "Cannot allocate memory|No space left on /dev/shm|object store memory",
            "the host has too little memory: {line}",
            Some("less for each node: `ray: {workers: {object_store_memory: 100MiB, memory: 500MiB}}`"),
        ),
    ]
}

/// The shell text of a host's checks.
fn checks(request: &DeployRequest<'_>, host: &HostInput, nodes: &[NodeSpec]) -> Result<String> {
    let name = host.key.display_name();
    let keys: Vec<&str> = nodes.iter().map(|node| node.key.as_str()).collect();
    let mut text = format!("{}keys={}\n{CHECKS}", Deployed.header(&host.tag), quote(&keys.join(" ")));
    let mut run = |check: &str, target: &str, program: &str, arguments: &[String]| {
        let words: Vec<String> = arguments.iter().map(|word| quote(word)).collect();
        text.push_str(&format!(
            "by_python {} {} {} \"$home/{program}\" {} &\n",
            quote(check),
            quote(target),
            CHECK_LIMIT + 10,
            words.join(" ")
        ));
    };
    if nodes.iter().any(|node| node.role == NodeRole::Head) {
        let node = |node: &NodeSpec| {
            json!({
                "target": node.key.display_name(),
                "resource": resource_of(&node.key),
                "CPU": node.cpus,
                "GPU": node.gpus,
                "memory": node.memory,
                "object_store_memory": node.object_store_memory,
            })
        };
        let want = json!({
            "dashboard": format!("http://{LOOPBACK}:{}", host.ports.dashboard),
            "nodes": request.nodes.iter().map(node).collect::<Vec<Value>>(),
            "timeout_s": CHECK_LIMIT,
            "patience_s": 40,
        });
        run("cluster", "head", "cluster.py", &["cluster".to_owned(), want.to_string()]);
        let mut workers = Vec::new();
        for worker in request.nodes.iter().filter(|node| node.role == NodeRole::Worker) {
            let on = request.hosts.iter().find(|input| input.key == worker.host);
            let ids = on.map_or_else(|| Ok(Vec::new()), |on| gpus_of(on, worker))?;
            workers.push(json!({
                "key": worker.key.display_name(),
                "node_resource": resource_of(&worker.key),
                "gpus": worker.gpus,
                "gpu_mode": if worker.first_gpu.is_some() { "proven" } else { "declared" },
                "ids": ids,
            }));
        }
        let want = json!({
            "address": format!("{LOOPBACK}:{}", host.ports.ray),
            "workers": workers,
            "grpc_ports": [host.ports.ray],
            "timeout_s": CHECK_LIMIT,
            "lines": "check",
        });
        run("task ran", "head", "probe.py", &[want.to_string()]);
    }
    text.push_str(&format!(
        "by_python 'closed ports' {} 30 \"$home/host.py\" closed \"$home\" {} &\n",
        quote(&name),
        quote(&name)
    ));
    text.push_str("wait\nrm -rf \"$dir\"\n");
    Ok(text)
}

#[cfg(test)]
mod tests;
