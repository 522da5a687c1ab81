//! What a runtime does on hosts: one *project* per host, everything that runs there for one cluster.
//!
//! Everything behind [`ProjectRuntime`] is pure: it turns a spec, the nodes and the facts about the hosts into files,
//! stages and scripts. `cluster::hosts` runs them, without knowing the runtime.

mod by_hand;
mod condition;
mod deployment;
pub(super) mod guard;
mod guard_in_pod;
mod logs;
pub(super) mod mlflow;
mod observation;
pub(super) mod setup;

use std::collections::BTreeSet;

pub use by_hand::ByHand;
pub use condition::{ContainerHealth, ContainerState};
pub use deployment::{
    Bundle, CleanOptions, DATA_FOLDER, DeployRequest, Deployment, Filling, HostFolders, HostInput, Others, Page,
    PrepareRequest, nodes_of,
};
pub use guard::{GuardAsk, guards};
pub use guard_in_pod::{GuardInPod, WANTS_FILES};
pub use logs::{LogLine, LogRequest, log_line};
pub(super) use observation::look_inside;
pub use observation::{CheckLine, Container, Observation, checks_in_values, checks_of, parse_observation};

use crate::error::Result;
use crate::host::Account;
use crate::name::{Key, Tag};
use crate::playbook::Stage;
use crate::spec::{NodeSpec, Spec};
use crate::state::HostPorts;

/// How Ray runs on hosts.
pub trait ProjectRuntime: Send + Sync {
    /// The account that its programs run as.
    fn account(&self) -> Account;

    /// Whether services can run beside Ray, each with its own credential.
    fn has_services(&self) -> bool;

    /// What a node is: `container` or `process`.
    fn node_is(&self) -> &'static str;

    /// The kinds of things that carry a host's tag, for the message that none is left.
    fn traces(&self) -> &'static str;

    /// The parent folder of all clusters on a host; `~/` is the home folder of the login user.
    fn folders(&self) -> &'static str;

    /// The folders of a host reached by SSH, by its tag.
    fn folders_of(&self, tag: &str) -> HostFolders {
        HostFolders::at(format!("{}/{tag}", self.folders()))
    }

    /// The playbooks whose variables a spec may set, by their names.
    fn playbooks(&self) -> &'static [&'static str];

    /// The data folder as nodes see it, if they do not see the host's own path.
    fn data_in_nodes(&self) -> Option<&'static str> {
        None
    }

    /// Chooses ports on a host where these are taken, except those that the host claims with [`Self::claim_script`]; the
    /// known ones are kept.
    fn choose_ports(&self, spec: &Spec, known: HostPorts, taken: &BTreeSet<u16>) -> HostPorts;

    /// The script that claims ports on a host for its nodes, so that no two clusters use the same; [`Self::claimed`]
    /// parses its output. `None` when [`Self::choose_ports`] chooses them all.
    fn claim_script(&self, request: &DeployRequest<'_>, host: &HostInput) -> Option<String> {
        let _ = (request, host);
        None
    }

    /// The script that prints who listens on a port named in the spec, when a node is to listen there itself;
    /// [`Self::refused`] parses its output.
    fn holder_script(&self, tag: &str, folders: &HostFolders, port: u16) -> Option<String> {
        let _ = (tag, folders, port);
        None
    }

    /// Parses the output of [`Self::holder_script`].
    ///
    /// # Errors
    /// When another process listens on the port.
    fn refused(&self, lines: &[String]) -> Result<()> {
        let _ = lines;
        Ok(())
    }

    /// The claimed ports, parsed from the output of [`Self::claim_script`].
    ///
    /// # Errors
    /// When no ports are free, or when another process listens on one named in the spec.
    fn claimed(&self, request: &DeployRequest<'_>, host: &HostInput, lines: &[String]) -> Result<HostPorts> {
        let _ = (request, lines);
        Ok(host.ports.clone())
    }

    /// The ports of a host, other than those of the pages, that could be reachable from outside, as ranges.
    fn ray_ports(&self, ports: &HostPorts, nodes: &[NodeSpec], is_head: bool, hosts: usize) -> Vec<(u16, u16)>;

    /// Of the ports of a host, those that the cluster's other hosts need where their site opens the network between
    /// them, as ranges with both ends included.
    fn ports_on_open_network(&self, ports: &HostPorts, nodes: &[NodeSpec]) -> Vec<(u16, u16)> {
        let _ = (ports, nodes);
        Vec::new()
    }

    /// The stage that prepares a host for a project.
    ///
    /// # Errors
    /// When the spec requires something that the runtime or the hosts do not support.
    fn preparation(&self, request: &PrepareRequest<'_>) -> Result<Stage>;

    /// How the data folder of a prepared host is filled; `None` when the spec has nothing for it.
    ///
    /// # Errors
    /// As for [`Self::preparation`].
    fn filling(&self, request: &PrepareRequest<'_>) -> Result<Option<Filling>>;

    /// Whether hosts open ports to each other, and to nobody else.
    fn opens_ports(&self) -> bool;

    /// The stage that opens a host to the other hosts, once all are known.
    ///
    /// # Errors
    /// When the runtime opens no ports.
    fn firewall(&self, request: &PrepareRequest<'_>) -> Result<Stage>;

    /// The deployment of one host. The drivers of the others need not run yet.
    ///
    /// # Errors
    /// When the host does not have what the spec requires, such as enough GPUs.
    fn deployment(&self, request: &DeployRequest<'_>, host: &Key) -> Result<Deployment>;

    /// One deployment for each host.
    ///
    /// # Errors
    /// As for [`Self::deployment`].
    fn deployments(&self, request: &DeployRequest<'_>) -> Result<Vec<Deployment>> {
        request.hosts.iter().map(|host| self.deployment(request, &host.key)).collect()
    }

    /// The web pages of a cluster with this spec, on the head's host.
    fn pages(&self, spec: &Spec, head_host: &Key, ports: &HostPorts) -> Vec<Page>;

    /// The port of the head's loopback for applications of Serve; `None` if it has no room for them.
    fn serve_port(&self, _ports: &HostPorts) -> Option<u16> {
        None
    }

    /// The address and the port that Serve's proxy listens on in the head, for this port of its host's loopback.
    fn serve_listens(&self, spec: &Spec, port: u16) -> (&'static str, u16) {
        let _ = spec;
        ("127.0.0.1", port)
    }

    /// The port of the head's loopback for the metrics of its node; `None` if they are not there.
    fn metrics_port(&self, _ports: &HostPorts) -> Option<u16> {
        None
    }

    /// The read-only script that prints everything on the host with this tag, for [`parse_observation`].
    fn inspect_script(&self, tag: &str, folders: &HostFolders) -> String;

    /// The script that stops, starts or kills one worker of a host, given the host's tag and the worker's key. Its last
    /// line is [`ByHand::done`] on success.
    fn worker_script(&self, tag: &str, folders: &HostFolders, worker: &Tag, by_hand: ByHand) -> String;

    /// The script that has the guard with this tag do something. Its last line is the guard's state.
    fn guard_script(&self, tag: &str, folders: &HostFolders, guard: &Tag, ask: &GuardAsk<'_>) -> String;

    /// The script that ends everything running with this tag and keeps the rest; it prints `::stopped` last on success.
    fn stop_script(&self, tag: &str, folders: &HostFolders) -> String;

    /// The idempotent script that removes everything with this tag. It prints `::removed`, `::kept` and `::left` lines,
    /// `::unknown` when processes of a node may have been missed, and at the end `::clean` when nothing is left.
    fn clean_script(&self, tag: &str, folders: &HostFolders, options: CleanOptions) -> String;

    /// The script that prints the logs of this tag, for [`log_line`].
    fn logs_script(&self, tag: &str, folders: &HostFolders, request: &LogRequest) -> String;
}
