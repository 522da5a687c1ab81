//! What a runtime does on hosts that are reached by SSH: one *project* per host, all that runs there of one cluster.
//!
//! Everything behind [`ProjectRuntime`] is pure: from a spec, the nodes and what the hosts told come files, stages and scripts.
//! `cluster::backend::hosts` runs them, and knows no runtime.

mod deployment;
mod logs;
mod observation;

use std::collections::BTreeSet;

pub use deployment::{
    CleanOptions, DeployRequest, Deployment, HostFolders, HostInput, Others, Page, PrepareRequest, nodes_of,
};
pub use logs::{LogLine, LogRequest, log_line};
pub use observation::{CheckLine, Container, Observation, checks_in_values, checks_of, parse_observation};

use super::{compose, native};
use crate::error::Result;
use crate::host::Account;
use crate::name::Key;
use crate::playbook::Stage;
use crate::provider::Runtime;
use crate::spec::{NodeSpec, Spec};
use crate::state::HostPorts;

/// How Ray runs on hosts that are reached by SSH.
pub trait ProjectRuntime: Send + Sync {
    /// As whom its programs run there.
    fn account(&self) -> Account;

    /// Services may run beside Ray, each with its own credential.
    fn has_services(&self) -> bool;

    /// What a node is there: `container`, `process`.
    fn node_is(&self) -> &'static str;

    /// What carries the tag of a host, for the sentence that none is left.
    fn traces(&self) -> &'static str;

    /// Where the folders of all clusters lie on a host; `~/` is the home folder of who is logged in as.
    fn folders(&self) -> &'static str;

    /// The folders of a host that is reached by SSH, by its tag.
    fn folders_of(&self, tag: &str) -> HostFolders {
        HostFolders::at(format!("{}/{tag}", self.folders()))
    }

    /// Chooses ports on a host where these are taken. Those that are claimed there instead are not among them.
    fn choose_ports(&self, taken: &BTreeSet<u16>) -> HostPorts;

    /// The script that claims ports on a host for its nodes, so that no two clusters have the same; [`Self::claimed`] reads what it
    /// prints. None where they are chosen from here.
    fn claim_script(&self, request: &DeployRequest<'_>, host: &HostInput) -> Option<String> {
        let _ = (request, host);
        None
    }

    /// The script that says who listens on a port that the spec names, where nodes are to listen there themselves; [`Self::refused`]
    /// reads what it prints.
    fn holder_script(&self, tag: &str, folders: &HostFolders, port: u16) -> Option<String> {
        let _ = (tag, folders, port);
        None
    }

    /// Refuses a port on which somebody listens.
    ///
    /// # Errors
    /// When somebody does.
    fn refused(&self, lines: &[String]) -> Result<()> {
        let _ = lines;
        Ok(())
    }

    /// The ports that were claimed.
    ///
    /// # Errors
    /// When there are no free ones, or when somebody else listens on one that the spec names.
    fn claimed(&self, request: &DeployRequest<'_>, host: &HostInput, lines: &[String]) -> Result<HostPorts> {
        let _ = (request, lines);
        Ok(host.ports.clone())
    }

    /// The ports of a host that Ray listens on besides those of the pages, as ranges, where they leave it or could.
    fn ray_ports(&self, ports: &HostPorts, nodes: &[NodeSpec], is_head: bool, hosts: usize) -> Vec<(u16, u16)>;

    /// The stage that brings a host to where a project can run on it.
    ///
    /// # Errors
    /// When the spec asks for what such hosts cannot do.
    fn preparation(&self, request: &PrepareRequest<'_>) -> Result<Stage>;

    /// Hosts open ports to each other, and to nobody else.
    fn opens_ports(&self) -> bool;

    /// The stage that opens a host to the others, all of which are known.
    ///
    /// # Errors
    /// When it has none to open.
    fn firewall(&self, request: &PrepareRequest<'_>) -> Result<Stage>;

    /// The deployment of one host. The drivers of the others need not run yet.
    ///
    /// # Errors
    /// When the host is not what the spec counts on.
    fn deployment(&self, request: &DeployRequest<'_>, host: &Key) -> Result<Deployment>;

    /// One deployment for each host.
    ///
    /// # Errors
    /// As for one.
    fn deployments(&self, request: &DeployRequest<'_>) -> Result<Vec<Deployment>> {
        request.hosts.iter().map(|host| self.deployment(request, &host.key)).collect()
    }

    /// The pages that a cluster of this spec has, on the host with the head.
    fn pages(&self, spec: &Spec, head_host: &Key, ports: &HostPorts) -> Vec<Page>;

    /// The shell text that prints what of this tag is on the host, for [`parse_observation`]. It changes nothing.
    fn inspect_script(&self, tag: &str, folders: &HostFolders) -> String;

    /// The script that ends what runs of this tag, and keeps all else; `::stopped` is its last word.
    fn stop_script(&self, tag: &str, folders: &HostFolders) -> String;

    /// The script that removes all that carries this tag: `::removed`, `::kept`, `::left` lines, `::unknown` ones of
    /// nodes of which something may have been missed, and `::clean` at last when nothing is left. It may be run again at any time.
    fn clean_script(&self, tag: &str, folders: &HostFolders, options: CleanOptions) -> String;

    /// The script that prints the logs of this tag, for [`log_line`].
    fn logs_script(&self, tag: &str, folders: &HostFolders, request: &LogRequest) -> String;
}

/// What a runtime does on hosts that are reached by SSH.
pub fn of(runtime: Runtime) -> &'static dyn ProjectRuntime {
    match runtime {
        Runtime::Docker => &compose::Compose,
        Runtime::Native => &native::NativeRuntime,
    }
}
