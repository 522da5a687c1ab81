//! The machines of a cluster: this one, hosts that are reached by SSH, or the pods of a platform. There is one way to
//! them for every command.

mod forward;
mod here;
mod log_file;
mod logs;
mod machine;
mod pod;
mod pods;
mod ray;
mod shell;
mod ssh;

use std::ffi::OsString;
use std::sync::Arc;

use futures_util::future::join_all;
use secrecy::SecretString;

use crate::error::Result;
use crate::host::SshHost;
use crate::provider::Context;
use crate::ray::Access;
use crate::state::{ClusterState, Paths};

pub use forward::Forward;
use here::Here;
pub(super) use here::data_here;
pub use logs::{Logs, NodeLine};
pub(super) use machine::Guard;
pub use machine::Machine;
pub(super) use pod::PodGuard;
pub use pod::PodHost;
pub(super) use pods::SERVE_PORT;
pub(super) use pods::short;
pub use pods::{Bridge, CLIENT_PORT, DASHBOARD_PORT, Pods, RemotePort};
pub use ray::RayClient;
pub use shell::Shell;
use ssh::Remote;
pub(super) use ssh::remote;

/// The machines of a cluster.
pub struct Machines(Kind);

/// What a cluster's machines are.
enum Kind {
    /// This one.
    Here(Box<Here>),
    /// Hosts that are reached by SSH.
    Ssh(Remote),
    /// Pods of a platform.
    Pods(Arc<Pods>),
}

impl Machines {
    /// The machines of a cluster, from its state. None is connected yet. On this machine programs have this environment,
    /// and reach Ray by `access`.
    ///
    /// # Errors
    /// If the cluster's provider cannot be opened, or the connections to its hosts cannot be written.
    pub async fn of(
        paths: &Paths,
        state: &ClusterState,
        context: &Context,
        environment: Vec<(OsString, OsString)>,
        access: Result<Access>,
    ) -> Result<Self> {
        if let Some(pods) = Pods::of(state, context)? {
            return Ok(Self(Kind::Pods(pods)));
        }
        Ok(Self(match remote(paths, state, context).await? {
            Some(remote) => Kind::Ssh(remote),
            None => {
                let (state, user) = (state.clone(), context.user_environment.clone());
                Kind::Here(Box::new(Here { state, environment, user, access }))
            }
        }))
    }

    /// The pods, if the cluster runs on a platform.
    pub fn pods(&self) -> Option<&Arc<Pods>> {
        match &self.0 {
            Kind::Pods(pods) => Some(pods),
            Kind::Here(_) | Kind::Ssh(_) => None,
        }
    }

    /// Connects to the head's host, if that is reached by SSH.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn head_by_ssh(&self) -> Result<Option<SshHost>> {
        match &self.0 {
            Kind::Ssh(remote) => remote.connect(remote.host("head")?).await.cloned().map(Some),
            Kind::Here(_) | Kind::Pods(_) => Ok(None),
        }
    }

    /// The one of this name, of its own or of a node on it.
    ///
    /// # Errors
    /// If there is none of that name.
    pub async fn named(&self, name: &str) -> Result<Machine<'_>> {
        match &self.0 {
            Kind::Here(here) => on_here(here, name),
            Kind::Ssh(remote) => Ok(Machine::by_ssh(remote, remote.host(name)?)),
            Kind::Pods(pods) => Ok(Machine::pod(pods, &pods.named(name).await?)),
        }
    }

    /// Those of these names, each once; all without a name.
    ///
    /// # Errors
    /// If there is none of such a name.
    pub async fn chosen(&self, names: &[String]) -> Result<Vec<Machine<'_>>> {
        match &self.0 {
            _ if !names.is_empty() => {}
            Kind::Here(here) => return here.names().iter().map(|name| on_here(here, name)).collect(),
            Kind::Ssh(remote) => return Ok(remote.hosts.iter().map(|host| Machine::by_ssh(remote, host)).collect()),
            Kind::Pods(pods) => {
                return Ok(pods.members().await?.iter().map(|member| Machine::pod(pods, member)).collect());
            }
        }
        let mut chosen: Vec<Machine<'_>> = Vec::new();
        for name in names {
            let machine = self.named(name).await?;
            // Two nodes on one host name the same host.
            if chosen.iter().all(|other| other.name() != machine.name()) {
                chosen.push(machine);
            }
        }
        Ok(chosen)
    }

    /// Puts the secrets of a job on every machine where it may run, or removes them without a text.
    ///
    /// # Errors
    /// If a machine does not answer, or its data folder cannot be written.
    pub async fn set_job_secrets(&self, id: &str, text: Option<&SecretString>) -> Result<()> {
        let all = match &self.0 {
            Kind::Pods(pods) => {
                // First, so that a pod that comes in between has them.
                pods.platform()?.keep_secrets(pods.scope(), id, text).await?;
                let members = pods.members().await?;
                members.iter().filter(|member| member.ready).map(|member| Machine::pod(pods, member)).collect()
            }
            Kind::Here(_) | Kind::Ssh(_) => self.chosen(&[]).await?,
        };
        // All have ended by then: none is left half done.
        join_all(all.iter().map(|machine| machine.set_job_secrets(id, text))).await.into_iter().collect()
    }
}

/// The host of this name that is this machine.
fn on_here<'a>(here: &Here, name: &str) -> Result<Machine<'a>> {
    let (host, data) = here.host(name)?;
    Ok(Machine::here(host, &data, here.before_commands()))
}
