//! The runtime `native` on hosts: nodes are processes of the login user, without root and without system-wide
//! installation.
//!
//! A supervisor on each host (`templates/ray-native/host.py`) does there what the agent does on this machine. All of
//! Ray stays on the loopback: without root no firewall could protect ports open to the network. Only where a site opens
//! the network between a cluster's hosts may they be several machines ([`spread`]).

mod checks;
mod claim;
mod guard;
mod mlflow;
mod service;
mod source;
mod spread;
mod stage;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::source::Source;
use super::NodePorts;
use super::ports::BLOCK;
use crate::error::{Error, ErrorKind, Result};
use crate::host::{Account, StageFile};
use crate::name::{Key, Tag};
use crate::playbook::{self, Stage, Step};
use crate::render::{quote, quote_path};
use crate::runtime::data::{self, JobUser};
use crate::runtime::project::guard::{GuardAsk, guard_script};
use crate::runtime::project::look_inside;
use crate::runtime::project::{
    ByHand, CleanOptions, DeployRequest, Deployment, Filling, HostFolders, HostInput, LogRequest, Page, PrepareRequest,
    ProjectRuntime, nodes_of, setup,
};
use crate::secret::MLFLOW_USER;
use crate::spec::{MLFLOW_VERSION, NodeRole, NodeSpec, SetupSpec, Spec};
use crate::state::HostPorts;
use crate::util::near;

const PROCESSES: &str = include_str!("shell/processes.sh");
const PORTS: &str = include_str!("shell/ports.sh");
const STOP: &str = include_str!("shell/stop.sh");
const INSPECT: &str = include_str!("shell/inspect.sh");
const CLEAN: &str = include_str!("shell/clean.sh");
const WORKER: &str = include_str!("shell/worker.sh");
const DATA: &str = include_str!("shell/data.sh");
const LOGS: &str = include_str!("shell/logs.sh");
const MODULES: &str = include_str!("shell/modules.sh");

/// The address that all of Ray listens on, except what a spread cluster's hosts need of each other ([`spread`]).
const LOOPBACK: &str = "127.0.0.1";
/// How long a node may take to end after SIGTERM, in seconds, before it is killed.
const GRACE: u32 = 10;

/// How long a worker that is started by hand may take to answer.
const START_LIMIT: Duration = Duration::from_secs(180);
/// How long one that is stopped by hand may take to end: `timeouts.stop` and more.
const STOP_LIMIT: Duration = Duration::from_secs(120);

/// The playbook that creates Ray's environment.
const PLAYBOOK: &str = "ray-native";

/// The playbook that makes the environment of the MLflow server.
const MLFLOW_PLAYBOOK: &str = "mlflow-native";
/// The playbook that installs the object store's program.
const STORE_PLAYBOOK: &str = "store-native";
/// The playbook that adds the packages and commands of a spec to a copy of Ray's environment.
const SETUP_PLAYBOOK: &str = "setup-native";

/// Nodes are processes of the login user.
#[derive(Debug, Clone, Copy)]
pub struct NativeRuntime;

impl ProjectRuntime for NativeRuntime {
    fn account(&self) -> Account {
        Account::User
    }

    fn has_services(&self) -> bool {
        false
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

    fn choose_ports(&self, _spec: &Spec, known: HostPorts, _taken: &BTreeSet<u16>) -> HostPorts {
        known
    }

    fn claim_script(&self, request: &DeployRequest<'_>, host: &HostInput) -> Option<String> {
        Some(claim::script(request, host))
    }

    fn holder_script(&self, tag: &str, folders: &HostFolders, port: u16) -> Option<String> {
        Some(claim::holder_script(tag, folders, port))
    }

    fn refused(&self, lines: &[String]) -> Result<()> {
        claim::refused(lines)
    }

    fn claimed(&self, request: &DeployRequest<'_>, host: &HostInput, lines: &[String]) -> Result<HostPorts> {
        claim::claimed(request, host, lines)
    }

    fn ray_ports(&self, ports: &HostPorts, _nodes: &[NodeSpec], _is_head: bool, _hosts: usize) -> Vec<(u16, u16)> {
        ports.blocks.values().map(|base| (*base, base + BLOCK - 1)).collect()
    }

    fn ports_on_open_network(&self, ports: &HostPorts, nodes: &[NodeSpec]) -> Vec<(u16, u16)> {
        let of_node = |node: &NodeSpec| spread::open_ports(node.role, claim::ports_of_node(&ports.blocks, node));
        nodes.iter().flat_map(of_node).map(|[first, last]| (first, last)).collect()
    }

    fn playbooks(&self) -> &'static [&'static str] {
        &[PLAYBOOK]
    }

    fn preparation(&self, request: &PrepareRequest<'_>) -> Result<Stage> {
        let PrepareRequest { spec, host, library, .. } = request;
        spread::refuse_closed_network(request)?;
        spread::refuse_own_services(request)?;
        if let Some(odd) = spec.playbooks.keys().find(|name| *name != PLAYBOOK) {
            let error = Error::new(ErrorKind::Spec, format!("read `playbooks.{odd}`"))
                .because(format!("the runtime `native` has no playbook `{odd}`; it has {PLAYBOOK}"));
            return Err(match near::nearest(odd, [PLAYBOOK]) {
                Some(near) => error.hint(format!("did you mean `{near}`?")),
                None => error.hint("leave it out, or set `runtime: docker`"),
            });
        }
        let source = Source::of(spec, &host.site);
        source.check()?;
        let mut variables = spec.playbooks.get(PLAYBOOK).cloned().unwrap_or_default();
        variables.extend(source.variables());
        for (name, value) in
            [("ray_version", spec.ray.version.as_str()), ("environments", host.folders.environments.as_str())]
        {
            if variables.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(Error::new(ErrorKind::Spec, format!("read `playbooks.{PLAYBOOK}`"))
                    .because(format!("gpucl sets its variable `{name}` itself")));
            }
        }
        let limit = spec.timeouts.prepare.0;
        let mut ray = playbook::load(library, PLAYBOOK)?.stage("prepare", &variables, limit)?;
        source.leave_out(&mut ray);
        let mut stages = vec![ray];
        // Services run beside the head, on the first host.
        let is_head = request.nodes.iter().all(|node| node.role != NodeRole::Head || node.host == host.key);
        if spec.own_store().is_some() && is_head {
            let variables = BTreeMap::from([("environments".to_owned(), host.folders.environments.clone())]);
            stages.push(playbook::load(library, STORE_PLAYBOOK)?.stage("prepare", &variables, limit)?);
        }
        if spec.own_mlflow() && is_head {
            let variables = BTreeMap::from([("mlflow_version".to_owned(), MLFLOW_VERSION.to_owned())]);
            stages.push(playbook::load(library, MLFLOW_PLAYBOOK)?.stage("prepare", &variables, limit)?);
        }
        // It takes the place of the Ray environment.
        if let Some(setup) = spec.setup() {
            stages.push(of_setup(request, &setup)?);
        }
        Ok(Stage::join("prepare", stages, limit))
    }

    fn filling(&self, request: &PrepareRequest<'_>) -> Result<Option<Filling>> {
        let step = Step {
            name: "create the data folder".to_owned(),
            unless: Some("[ -d data ]".to_owned()),
            run: "mkdir -p data".to_owned(),
            ..Step::default()
        };
        let prelude = match Source::of(request.spec, &request.host.site).environment() {
            "" => DATA.to_owned(),
            modules => format!("home=$gpucl_home\n{modules}{DATA}"),
        };
        data::filling(
            request,
            JobUser {
                prelude: &prelude,
                by_image: "echo 'this runtime has no images'\nexit 1",
                program: "fill.py",
                before: vec![step],
                after: Vec::new(),
                files: Vec::new(),
                variables: BTreeMap::new(),
            },
        )
    }

    fn opens_ports(&self) -> bool {
        false
    }

    fn firewall(&self, _request: &PrepareRequest<'_>) -> Result<Stage> {
        Err(Error::new(ErrorKind::Internal, "open ports").because("the runtime `native` stays on the loopback"))
    }

    fn deployment(&self, request: &DeployRequest<'_>, host: &Key) -> Result<Deployment> {
        let input = request.hosts.iter().find(|input| input.key == *host).ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("render the project of {}", host.display_name()))
                .because("it is not one of the hosts")
        })?;
        let nodes = nodes_of(request.nodes, host);
        let checks = checks::checks(request, input, &nodes)?;
        let (mut stage, digests) = stage::deploy(request, input, &nodes)?;
        if request.spec.hosts.len() < 2 {
            // Several hosts are checked once all of them are up.
            stage.steps.push(look_inside(&checks));
        }
        Ok(Deployment { host: host.clone(), project: input.tag.clone(), nodes, digests, stage, checks })
    }

    fn pages(&self, spec: &Spec, head_host: &Key, ports: &HostPorts) -> Vec<Page> {
        let page = |name: &str, port: u16, secret: &str, user: Option<&str>| Page {
            name: name.to_owned(),
            host: head_host.clone(),
            port,
            secret: secret.to_owned(),
            user: user.map(str::to_owned),
            user_secret: None,
        };
        let mlflow = spec.own_mlflow().then(|| page("mlflow", ports.mlflow, "mlflow_password", Some(MLFLOW_USER)));
        std::iter::once(page("dashboard", ports.dashboard, "ray_token", None)).chain(mlflow).collect()
    }

    fn serve_port(&self, ports: &HostPorts) -> Option<u16> {
        ports.blocks.get(&Key::head()).map(|base| NodePorts { base: *base, dashboard: ports.dashboard }.serve())
    }

    fn metrics_port(&self, ports: &HostPorts) -> Option<u16> {
        ports.blocks.get(&Key::head()).map(|base| NodePorts { base: *base, dashboard: ports.dashboard }.metrics())
    }

    fn inspect_script(&self, tag: &str, folders: &HostFolders) -> String {
        format!("{}{INSPECT}", header(tag, folders))
    }

    fn worker_script(&self, tag: &str, folders: &HostFolders, worker: &Tag, by_hand: ByHand) -> String {
        let limit = if by_hand == ByHand::Start { START_LIMIT } else { STOP_LIMIT };
        by_hand.script(
            &format!("{}{MODULES}", header(tag, folders)),
            &worker.to_string(),
            worker.key.as_str(),
            limit,
            WORKER,
        )
    }

    fn guard_script(&self, tag: &str, folders: &HostFolders, _guard: &Tag, ask: &GuardAsk<'_>) -> String {
        let python = "\"$(sed -n 's|^ray_env \\(.*\\)|\\1/bin/python|p' \"$home/prepared/prepare\")\"";
        guard_script(&header(tag, folders), &format!("{python} -I -B \"$home/end/guard.py\""), "\"$home\"", ask)
    }

    fn stop_script(&self, tag: &str, folders: &HostFolders) -> String {
        let header = header(tag, folders);
        format!("{header}{MODULES}ends_cluster=1\n{STOP}if stop_project; then echo ::stopped; fi\n")
    }

    /// There are no data volumes. Ray's environment stays, as this user's clusters share it, unless `purge` is set.
    fn clean_script(&self, tag: &str, folders: &HostFolders, options: CleanOptions) -> String {
        let flags = [options.ends_cluster, options.keep_data, options.purge];
        let [ends_cluster, keep_data, purge] = flags.map(|is| if is { "1" } else { "" });
        let header = header(tag, folders);
        format!(
            "{header}{MODULES}ends_cluster={ends_cluster}\nkeep_data={keep_data}\npurge={purge}\nblock={BLOCK}\ndashboard=\n{PORTS}{STOP}{CLEAN}clean\n"
        )
    }

    fn logs_script(&self, tag: &str, folders: &HostFolders, request: &LogRequest) -> String {
        let lines = request.tail.map_or_else(|| "+1".to_owned(), |tail| tail.to_string());
        request.script(&format!("{}lines={lines}\n", header(tag, folders)), LOGS)
    }
}

/// The stage that makes the environment of a spec's `setup` from the Ray environment.
fn of_setup(request: &PrepareRequest<'_>, spec: &SetupSpec) -> Result<Stage> {
    let source = Source::of(request.spec, &request.host.site);
    let variables = [
        ("ray_version", request.spec.ray.version.clone()),
        ("tag", request.host.tag.clone()),
        ("setup", spec.digest()),
        ("index_url", spec.index_url.clone().unwrap_or_default()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    let variables = variables.into_iter().chain(source.variables()).collect();
    let limit = request.spec.timeouts.prepare.0;
    let mut stage = playbook::load(request.library, SETUP_PLAYBOOK)?.stage("prepare", &variables, limit)?;
    source.leave_out(&mut stage);
    for (path, text) in
        [("setup/requirements.txt", setup::requirements(spec)), ("setup/commands.sh", setup::commands(spec))]
    {
        stage.files.push(StageFile { path: path.to_owned(), mode: 0o600, bytes: text.into_bytes() });
    }
    Ok(stage)
}

/// The beginning of every script of a tag.
fn header(tag: &str, folders: &HostFolders) -> String {
    let home = quote_path(&folders.home);
    // When a provider claims the folder, the cluster has no other host on the machine: everything with its name belongs
    // to it.
    let scope = match (folders.claim.as_str(), tag.rsplit_once('-')) {
        ("", _) | (_, None) => String::new(),
        (_, Some((scope, _))) => quote(&format!("{scope}-")),
    };
    let (tag, claim) = (quote(tag), quote(&folders.claim));
    format!("tag={tag}\nscope={scope}\nhome={home}\nclaim={claim}\ngrace={GRACE}\n{PROCESSES}")
}

#[cfg(test)]
mod tests;
