//! The machines of a cluster: this one, hosts that are reached by SSH, or the pods of a platform. There is one way to
//! them for every command.

mod here;
mod machine;
mod pod;
mod pods;
mod ssh;

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};
use secrecy::SecretString;

use crate::error::Result;
use crate::host::{
    Account, HostPath, SshHost, StreamHost, put_secrets, put_secrets_here, remove_secrets, remove_secrets_here,
};
use crate::provider::Context;
use crate::state::{ClusterState, Paths};

pub(super) use here::data_here;
pub use here::{local_hosts, node_logs};
pub use machine::Machine;
use machine::Way;
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
        /// The user's home folder.
        home: PathBuf,
    },
    /// Hosts that are reached by SSH.
    Ssh(Remote),
    /// Pods of a platform.
    Pods(Arc<Pods>),
}

impl Machines {
    /// The machines of a cluster, from its state. None is connected yet.
    ///
    /// # Errors
    /// If the cluster's provider cannot be opened, or the connections to its hosts cannot be written.
    pub async fn of(paths: &Paths, state: &ClusterState, context: &Context) -> Result<Self> {
        if let Some(pods) = Pods::of(state, context)? {
            return Ok(Self::Pods(pods));
        }
        Ok(match remote(paths, state, context).await? {
            Some(remote) => Self::Ssh(remote),
            None => Self::Here { state: Box::new(state.clone()), home: context.user_environment.home.clone() },
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
            Self::Ssh(remote) => remote.connect(remote.host("head")?).await.map(Some),
            Self::Here { .. } | Self::Pods(_) => Ok(None),
        }
    }

    /// Opens the one of this name, of its own or of a node on it.
    ///
    /// # Errors
    /// If there is none of that name, or it does not answer.
    pub async fn open(&self, name: &str) -> Result<Machine> {
        match self {
            Self::Here { state, home } => Ok(Machine::Here { data: data_here(state, name)?, home: home.clone() }),
            Self::Ssh(remote) => {
                let host = remote.host(name)?;
                Ok(Machine::There {
                    way: Way::Ssh(remote.connect(host).await?),
                    data: host.folders().data(),
                    data_in_nodes: host.runtime.data_in_nodes(),
                    data_is_roots: host.runtime.account() == Account::Root,
                })
            }
            Self::Pods(pods) => {
                let pod = PodHost::new(pods, &pods.named(name).await?);
                let data = pod.data().to_owned();
                Ok(Machine::There { way: Way::Pod(pod), data, data_in_nodes: None, data_is_roots: false })
            }
        }
    }

    /// Puts the secrets of a job on every machine where it may run, or removes them without a text.
    ///
    /// # Errors
    /// If a machine does not answer, or its data folder cannot be written.
    pub async fn set_job_secrets(&self, id: &str, text: Option<&SecretString>) -> Result<()> {
        match self {
            Self::Here { state, .. } => {
                let data = data_here(state, "head")?;
                match text {
                    Some(text) => put_secrets_here(&data, id, text),
                    None => remove_secrets_here(&data, id),
                }
            }
            Self::Ssh(remote) => {
                let each = remote.hosts.iter().map(|host| async move {
                    let ssh = remote.connect(host).await?;
                    let data = host.folders().data();
                    let is_root = host.runtime.account() == Account::Root;
                    let done = set_secrets(&ssh, HostPath { path: ".", within: Some(&data), is_root }, id, text).await;
                    ssh.close().await;
                    done
                });
                // All have ended by then: none is left half done.
                join_all(each).await.into_iter().collect()
            }
            Self::Pods(pods) => {
                // First, so that a pod that comes in between has them.
                pods.platform()?.keep_secrets(pods.scope(), id, text).await?;
                let members = pods.members().await?;
                let each = members.iter().filter(|member| member.ready).map(|member| async move {
                    let pod = PodHost::new(pods, member);
                    set_secrets(&pod, HostPath { path: ".", within: Some(pod.data()), is_root: false }, id, text).await
                });
                try_join_all(each).await.map(drop)
            }
        }
    }
}

async fn set_secrets(on: &dyn StreamHost, data: HostPath<'_>, id: &str, text: Option<&SecretString>) -> Result<()> {
    match text {
        Some(text) => put_secrets(on, data, id, text).await,
        None => remove_secrets(on, data, id).await,
    }
}
