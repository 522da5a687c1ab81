//! The runtime `native` on hosts that are reached by SSH: nodes are processes of the user that is logged in as, and neither root
//! nor anything that is installed for all is needed.
//!
//! A supervisor on each host (`templates/ray-native/host.py`) does there what the agent does on this machine. All of Ray stays on
//! the loopback: without root there is no firewall that could close what leaves it.

mod checks;
mod stage;

use std::collections::BTreeSet;

use super::NodePorts;
use crate::error::{Error, ErrorKind, Result};
use crate::host::Account;
use crate::name::Key;
use crate::plan::NodeSpec;
use crate::playbook::{self, Stage};
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

/// The address that all of Ray is at.
const LOOPBACK: &str = "127.0.0.1";
/// The ports of a host, and of each of its nodes.
const REGION: u16 = 2_000;
const BLOCK: u16 = 100;
/// Where the ports of hosts begin: below those that Linux hands out by itself (32768 and up).
const REGIONS: std::ops::Range<u16> = 5..16;
/// How long a node may take to end by itself, in seconds, before it is ended.
const GRACE: u32 = 10;

/// The playbook that makes Ray's environment.
const PLAYBOOK: &str = "ray-native";

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
        let checks = checks::checks(request, input, &nodes)?;
        let mut stage = stage::deploy(request, input, &nodes)?;
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

/// The name of the short link of a host, as [`Layout`](super::Layout) has it.
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

#[cfg(test)]
mod tests;
