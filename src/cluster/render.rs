//! `render`: the files that `up` would deliver, made by the same code, and the file for Ray's own `ray up`. Read-only.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::hosts::{Addresses, Layout, playbooks_fit};
use super::open::kind_of;
use super::platform;
use super::settings::Settings;
use super::substrate::{Look, Opening};
use crate::error::{Doing as _, ErrorKind, Result};
use crate::host::LocalHost;
use crate::name::Key;
use crate::plan::{Machine, desired};
use crate::playbook::{self, Facts, GpuFact, RunAs, Vendor};
use crate::provider::{HostPlace, HostRequest, ProviderKind, Site};
use crate::runtime;
use crate::runtime::compose;
use crate::runtime::project::{HostFolders, HostInput};
use crate::secret::{Secrets, ray_token_path};
use crate::spec::{Loaded, Per, Spec};
use crate::state::{ClusterState, Store};

const README: &str = "\
The files that `gpucl up` delivers and runs, written by `gpucl render`. Nothing was started.

plan.txt                  what `up` would do, if that is known without a connection
host-N/prepare.sh         the program that prepares the host, in one piece
host-N/deploy.sh          the program that delivers and starts what runs on the host, in one piece
host-N/compose/           the project's files again, for reading
host-N/lib/, build/       what containers see at /opt/gpucl, and what images are built from
host-N/nodes.json, *.py   where nodes are processes: their settings, and the programs that start them
host-N/checks.sh          the checks that must pass before the cluster is ready

Values that are not known yet have placeholders:
- No secret is rendered, not even those of an existing store: secrets/ says what will be there.
- GPUs are those that the host has reported, or GPU-0, GPU-1 and so on. Ports are those of the cluster, or those that
  `up` tries first; if they are in use, it takes others.
- CPUs and memory are shares of what the host has reported, or of 64 CPUs and 64 GiB.
- The owner in every tag is 00000000 until the first `up` has created one.
";

/// A rendered file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedFile {
    /// The path relative to the output folder, such as `host-0/node.py`.
    pub path: PathBuf,
    /// The file's content.
    pub bytes: Vec<u8>,
}

/// The CPUs of a host that has not been inspected, unless the spec asks for more.
const STAND_IN_CPUS: u32 = 64;

/// Placeholder facts for a host that has not been inspected: enough for what the spec asks.
fn stand_in(spec: &Spec, host: usize) -> Facts {
    let (mut gpus, mut cpus) = (0, spec.ray.head.cpus);
    for group in spec.ray.workers.groups().iter().filter(|group| spec.runs_on(group, host)) {
        let hosts = (0..spec.hosts.len()).filter(|other| spec.runs_on(group, *other)).count();
        let here = group.count.unwrap_or(1).div_ceil(u32::try_from(hosts).unwrap_or(1).max(1));
        let (workers, gpus_each) = match group.per {
            Some(Per::Gpu) => (1, 1),
            Some(Per::Host) => (1, group.gpus.unwrap_or(1)),
            None => (here, group.gpus.unwrap_or(0)),
        };
        gpus += workers * gpus_each;
        cpus += workers * group.cpus.unwrap_or(1);
    }
    let gpu = |number: u32| GpuFact {
        pci: format!("0000:{:02x}:00.0", number + 1),
        vendor: Vendor::Nvidia,
        device_id: String::new(),
        driver: None,
        name: None,
        uuid: Some(format!("GPU-{number}")),
        memory: None,
        mig: None,
        render: None,
        unique_id: None,
    };
    Facts {
        os: "ubuntu".to_owned(),
        os_version: "24.04".to_owned(),
        arch: "x86_64".to_owned(),
        cpus: cpus.max(STAND_IN_CPUS),
        memory: 64 << 30,
        gpus: (0..gpus).map(gpu).collect(),
        ..Facts::default()
    }
}

/// The hosts with their facts, or with placeholders. This machine's own facts are collected now.
async fn hosts_now(settings: &Settings, spec: &Spec, known: &ClusterState) -> Result<Vec<HostInput>> {
    let (scope, provider) = (settings.scope(&spec.name), settings.provider(spec)?);
    let mut hosts = hosts(spec, &scope, known);
    for (host, entry) in hosts.iter_mut().zip(&spec.hosts) {
        let request = HostRequest::new(host.key.clone(), entry.clone());
        if host.site.is_plain() {
            host.site = provider.site();
        }
        if let Some(HostPlace::Local { folder, claim }) = provider.standing(&scope, &request) {
            let here =
                LocalHost::new(host.key.display_name(), folder.clone(), settings.host_environment.iter().cloned())?;
            host.facts = playbook::facts(&here).await?;
            host.folders = HostFolders::here(&folder, claim, &settings.paths);
        }
    }
    Ok(hosts)
}

/// The hosts with the facts in the state, or with placeholders.
fn hosts(spec: &Spec, scope: &crate::name::Scope, known: &ClusterState) -> Vec<HostInput> {
    let runtime = runtime::of(spec.runtime);
    let host = |index: usize| {
        let key = Key::host(index);
        let noted = known.host(&key).cloned().unwrap_or_default();
        let site = match noted.place {
            Some(HostPlace::Ssh { site, .. }) => *site,
            _ => Site::default(),
        };
        HostInput {
            tag: scope.tag(&key).to_string(),
            facts: noted.facts.unwrap_or_else(|| stand_in(spec, index)),
            address: noted.address.unwrap_or_else(|| address_of(&spec.hosts[index])),
            ports: runtime.choose_ports(spec, noted.ports.unwrap_or_default(), &BTreeSet::new()),
            folders: runtime.folders_of(&scope.tag(&key).to_string()).at_site(&site),
            site,
            key,
        }
    };
    (0..spec.hosts.len()).map(host).collect()
}

/// The address in a host's entry of the spec.
fn address_of(entry: &Value) -> String {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    text("private_address").or_else(|| text("node")).unwrap_or_else(|| "HOST_ADDRESS".to_owned())
}

fn known_of(settings: &Settings, spec: &Spec) -> Result<ClusterState> {
    let scope = settings.scope(&spec.name);
    Ok(Store::open(&settings.paths, &spec.name)?
        .map_or_else(|| ClusterState::new(&scope, jiff::Timestamp::now()), |store| store.state().clone()))
}

/// Renders all files that `up` would deliver for this spec.
pub async fn render(settings: &Settings, loaded: &Loaded) -> Result<Vec<RenderedFile>> {
    let spec = &loaded.spec;
    let known = known_of(settings, spec)?;
    if kind_of(spec)? == ProviderKind::Platform {
        let folder = settings.paths.cluster(&spec.name);
        let opening = Opening {
            settings,
            spec,
            loaded: Some(loaded),
            up: None,
            known: &known,
            connections: &folder,
            credentials: &folder,
            look: Look::Running,
        };
        let text = platform::manifest(&opening).await?;
        return Ok(vec![RenderedFile { path: "cluster.yaml".into(), bytes: text.into() }]);
    }
    playbooks_fit(settings, loaded)?;
    // People read, send and paste rendered files, so that even existing keys are left out.
    let secrets = match spec.external_store() {
        Some(_) => Secrets::placeholders_with_external(),
        None => Secrets::placeholders(),
    };
    let scope = settings.scope(&spec.name);
    let layout = Layout {
        scope: &scope,
        spec,
        library: &settings.library,
        secrets: Ok(&secrets),
        files: Some(Vec::new()),
        // One file per stage, as for existing hosts, whose preparation knows the addresses of the others.
        addresses: Addresses::BeforePreparation,
        hosts: hosts_now(settings, spec, &known).await?,
    };
    let nodes = layout.nodes_with(&[]).map_err(|(path, sentence)| loaded.places.error(&path, sentence))?;
    let deployments = layout.deployments(&nodes, &known.pages().cloned().unwrap_or_default())?;
    let mut files = vec![RenderedFile { path: "README.txt".into(), bytes: README.into() }];
    let mut put = |path: String, bytes: Vec<u8>| files.push(RenderedFile { path: path.into(), bytes });
    if layout.hosts.iter().all(|host| !host.folders.claim.is_empty()) {
        let plan = super::plan::plan(settings, loaded, false).await?.plan;
        let plan = if plan.is_empty() { "nothing to change\n".to_owned() } else { plan.to_string() };
        put("plan.txt".to_owned(), plan.into());
    }
    for (host, deployment) in layout.hosts.iter().zip(&deployments) {
        let folder = host.key.display_name();
        let prepare = layout.preparation(&host.key, &nodes)?;
        let home = &host.folders.home;
        put(format!("{folder}/prepare.sh"), playbook::program_text(home, &prepare)?.into());
        put(format!("{folder}/deploy.sh"), playbook::program_text(home, &deployment.stage)?.into());
        put(format!("{folder}/checks.sh"), deployment.checks.clone().into());
        for file in &deployment.stage.files {
            put(format!("{folder}/{}", file.path), file.bytes.clone());
        }
    }
    Ok(files)
}

/// Renders the file for Ray's own `ray up`: its provider `local`, with a container on each host.
pub fn ray_cluster_yaml(settings: &Settings, loaded: &Loaded) -> Result<Vec<RenderedFile>> {
    let spec = &loaded.spec;
    let scope = settings.scope(&spec.name);
    let known = known_of(settings, spec)?;
    let hosts = hosts(spec, &scope, &known);
    let machine = |host: &HostInput| (host.key.clone(), Machine::of(&host.facts, spec.runtime));
    let machines: Vec<(Key, Machine)> = hosts.iter().map(machine).collect();
    let nodes = desired(spec, &machines).map_err(|(path, sentence)| loaded.places.error(&path, sentence))?;
    let text = |key: &str| spec.hosts.first().and_then(|entry| entry.get(key)).and_then(Value::as_str);
    let addresses: Vec<String> = spec.hosts.iter().map(address_of).collect();
    let mut auth = json!({"ssh_user": text("user").unwrap_or("ubuntu")});
    if let Some(path) = text("identity_file") {
        auth["ssh_private_key"] = json!(path);
    }
    let images = compose::host_images(spec, &hosts[0].facts, true, &settings.library)?;
    let head = nodes.first();
    // Ray's file can only describe one node per host: the host's workers together.
    let gpus = |host: &HostInput| nodes.iter().filter(|node| node.host == host.key).map(|node| node.gpus).sum::<u32>();
    let cpus = |host: &HostInput| {
        let workers = nodes.iter().filter(|node| node.host == host.key && node.key != Key::head());
        workers.map(|node| node.cpus).sum::<u32>()
    };
    // Without a number, Ray counts the CPUs itself: a host's share is unknown until it was inspected.
    let is_known = spec.ray.workers.groups().iter().all(|group| group.cpus.is_some())
        || hosts.iter().all(|host| known.host(&host.key).is_some_and(|host| host.facts.is_some()));
    let counted = |cpus: u32| is_known.then_some(cpus);
    let own = |worker: bool| match (worker, hosts.len()) {
        // With a single host the head does the work of its workers.
        (false, 1) => (counted(cpus(&hosts[0]) + head.map_or(0, |head| head.cpus)), gpus(&hosts[0])),
        (false, _) => (Some(head.map_or(0, |head| head.cpus)), 0),
        (true, _) => hosts.last().map_or((counted(1), 0), |host| (counted(cpus(host)), gpus(host))),
    };
    let start = |flags: &str, (cpus, gpus): (Option<u32>, u32)| {
        let cpus = cpus.map(|cpus| format!(" --num-cpus={cpus}")).unwrap_or_default();
        let flags = format!("{flags}{cpus} --num-gpus={gpus} --disable-usage-stats");
        json!(["ray stop", format!("ulimit -n 65536; RAY_AUTH_MODE=token ray start {flags}")])
    };
    let store = nodes.iter().map(|node| node.object_store_memory).sum::<u64>();
    let token = ray_token_path(&settings.paths.cluster(&spec.name));
    let file = json!({
        "cluster_name": spec.name,
        "auth": auth,
        "docker": {
            "image": images.ray,
            "container_name": format!("gpucl-{}", spec.name),
            "pull_before_run": true,
            "run_options": [
                format!("--shm-size={}", compose::shared_memory(store, compose::loader_room(hosts[0].facts.capacity(RunAs::Containers).memory))),
                "--ulimit nofile=65536:65536",
                "-e RAY_AUTH_MODE=token",
            ],
        },
        // Ray's default path of the token.
        "file_mounts": {"/home/ray/.ray/auth_token": token.display().to_string()},
        "head_start_ray_commands": start(
            "--head --port=6379 --dashboard-host=127.0.0.1 --autoscaling-config=~/ray_bootstrap_config.yaml",
            own(false)
        ),
        "worker_start_ray_commands": start("--address=$RAY_HEAD_IP:6379", own(true)),
    });
    let yaml = serde_yaml::to_string(&file).doing(ErrorKind::Internal, || "write the file for `ray up`".to_owned())?;
    let token = token.display();
    let text = format!(
        "# For Ray's own `ray up`, by `gpucl render --as ray-cluster-yaml`.\n\
         # The machines must already have Docker and drivers.\n\
         # It reads the cluster's token from {token};\n\
         # `gpucl up` makes it, or: mkdir -p \"$(dirname {token})\" && ray get-auth-token --generate, and copy it there.\n\
         # Nothing closes Ray's ports here: let a firewall admit only these machines.\n\
         provider: {{type: local, head_ip: {}, worker_ips: {}}}\n{yaml}",
        json!(addresses[0]),
        json!(addresses[1..]),
    );
    Ok(vec![RenderedFile { path: "ray-cluster.yaml".into(), bytes: text.into() }])
}
