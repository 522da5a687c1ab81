//! The machines of a cluster: this one, hosts that are reached by SSH, or the pods of a platform. There is one way to
//! them for every command.

mod here;
mod log_file;
mod machine;
mod pod;
mod pods;
mod ssh;

use std::ffi::OsString;
use std::sync::Arc;

use futures_util::future::join_all;
use secrecy::SecretString;

use crate::error::Result;
use crate::host::{LocalHost, SshHost};
use crate::provider::Context;
use crate::runtime::project::DATA_FOLDER;
use crate::state::{ClusterState, Paths};

pub(super) use here::data_here;
use here::host_here;
pub use here::{local_hosts, node_logs};
pub use log_file::LogFile;
pub use machine::Machine;
pub use pod::PodHost;
pub(super) use pods::short;
pub use pods::{Bridge, CLIENT_PORT, DASHBOARD_PORT, Pods, RemotePort};
pub(super) use ssh::remote;
pub use ssh::{Remote, RemoteHost};

/// The machines of a cluster.
pub enum Machines {
    /// This one.
    Here {
        /// The cluster's state.
        state: Box<ClusterState>,
        /// The environment of the programs on it.
        environment: Vec<(OsString, OsString)>,
    },
    /// Hosts that are reached by SSH.
    Ssh(Remote),
    /// Pods of a platform.
    Pods(Arc<Pods>),
}

impl Machines {
    /// The machines of a cluster, from its state; `environment` is that of programs on this machine. None is
    /// connected yet.
    ///
    /// # Errors
    /// If the cluster's provider cannot be opened, or the connections to its hosts cannot be written.
    pub async fn of(
        paths: &Paths,
        state: &ClusterState,
        context: &Context,
        environment: Vec<(OsString, OsString)>,
    ) -> Result<Self> {
        if let Some(pods) = Pods::of(state, context)? {
            return Ok(Self::Pods(pods));
        }
        Ok(match remote(paths, state, context).await? {
            Some(remote) => Self::Ssh(remote),
            None => Self::Here { state: Box::new(state.clone()), environment },
        })
    }

    /// The pods, if the cluster runs on a platform.
    pub fn pods(&self) -> Option<&Arc<Pods>> {
        match self {
            Self::Pods(pods) => Some(pods),
            Self::Here { .. } | Self::Ssh(_) => None,
        }
    }

    /// Connects to the head's host, if that is reached by SSH.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn head_by_ssh(&self) -> Result<Option<SshHost>> {
        match self {
            Self::Ssh(remote) => remote.connect(remote.host("head")?).await.cloned().map(Some),
            Self::Here { .. } | Self::Pods(_) => Ok(None),
        }
    }

    /// Opens the one of this name, of its own or of a node on it.
    ///
    /// # Errors
    /// If there is none of that name, or it does not answer.
    pub async fn open(&self, name: &str) -> Result<Machine> {
        match self {
            Self::Here { state, environment } => {
                let (key, folder) = host_here(state, name)?;
                let host = LocalHost::new(key.display_name(), folder.clone(), environment.clone())?;
                Ok(Machine::here(host, &folder.join(DATA_FOLDER)))
            }
            Self::Ssh(remote) => {
                let host = remote.host(name)?;
                Ok(Machine::by_ssh(host, remote.connect(host).await?.clone()))
            }
            Self::Pods(pods) => Ok(Machine::pod(pods, &pods.named(name).await?)),
        }
    }

    /// Puts the secrets of a job on every machine where it may run, or removes them without a text.
    ///
    /// # Errors
    /// If a machine does not answer, or its data folder cannot be written.
    pub async fn set_job_secrets(&self, id: &str, text: Option<&SecretString>) -> Result<()> {
        let all: Vec<Machine> = match self {
            Self::Here { .. } => vec![self.open("head").await?],
            Self::Ssh(remote) => {
                let each = remote.hosts.iter().map(|host| async move {
                    let machine = Machine::by_ssh(host, remote.connect(host).await?.clone());
                    machine.set_job_secrets(id, text).await
                });
                // All have ended by then: none is left half done.
                return join_all(each).await.into_iter().collect();
            }
            Self::Pods(pods) => {
                // First, so that a pod that comes in between has them.
                pods.platform()?.keep_secrets(pods.scope(), id, text).await?;
                pods.members().await?.iter().filter(|member| member.ready).map(|pod| Machine::pod(pods, pod)).collect()
            }
        };
        join_all(all.iter().map(|machine| machine.set_job_secrets(id, text))).await.into_iter().collect()
    }
}
