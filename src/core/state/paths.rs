//! The folders of one user.

use std::path::PathBuf;

use crate::event::Bus;
use crate::name::ClusterName;
use crate::provider::{Context, UserEnvironment};

/// The folders of one user, determined by the command line.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Configuration: the owner, the user's own playbooks and templates.
    pub config: PathBuf,
    /// State: clusters and run records. It must outlive a reboot.
    pub state: PathBuf,
    /// Data of hosts on this machine.
    pub data: PathBuf,
    /// Data that can be recreated: the shared Ray environments.
    pub cache: PathBuf,
    /// A short folder for sockets; gone at a reboot.
    pub runtime: PathBuf,
}

impl Paths {
    /// The folder of the states of all clusters.
    pub fn clusters(&self) -> PathBuf {
        self.state.join("clusters")
    }

    /// The folder of one cluster's state.
    pub fn cluster(&self, name: &ClusterName) -> PathBuf {
        self.clusters().join(name.as_str())
    }

    /// The folder of the run records.
    pub fn runs(&self) -> PathBuf {
        self.state.join("runs")
    }

    /// What a provider is opened with.
    pub fn context(&self, user_environment: UserEnvironment, events: Bus) -> Context {
        Context {
            data_dir: self.data.clone(),
            cache_dir: self.cache.clone(),
            runtime_dir: self.runtime.clone(),
            clusters_dir: self.clusters(),
            user_environment,
            events,
        }
    }

    /// The file that holds the owner.
    pub fn owner(&self) -> PathBuf {
        self.config.join("owner")
    }
}
