//! The settings shared by all verbs.

use std::path::PathBuf;

use crate::engine::Cancel;
use crate::error::Result;
use crate::event::Bus;
use crate::name::{ClusterName, Owner, Scope};
use crate::provider::{Context, Provider, UserEnvironment};
use crate::providers;
use crate::render::Library;
use crate::secret::Vault;
use crate::spec::Spec;
use crate::state::Paths;

/// The settings of a command, built by the command line and passed to every verb.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The user's folders.
    pub paths: Paths,
    /// The owner of the clusters.
    pub owner: Owner,
    /// Playbooks and templates.
    pub library: Library,
    /// The gpucl executable, to start an agent with.
    pub program: PathBuf,
    /// The environment variables passed to processes that outlive the command.
    pub environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// The environment variables of programs on a host that is this machine.
    pub host_environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// The caller's home, XDG folders and environment variables.
    pub user_environment: UserEnvironment,
    /// Where events are sent.
    pub events: Bus,
    /// Cancellation by Ctrl-C.
    pub cancel: Cancel,
}

impl Settings {
    /// The scope of a cluster of this owner.
    pub fn scope(&self, cluster: &ClusterName) -> Scope {
        Scope { owner: self.owner.clone(), cluster: cluster.clone() }
    }

    /// The context to open a provider with.
    pub fn context(&self) -> Context {
        self.paths.context(self.user_environment.clone(), self.events.clone())
    }

    /// The user's credentials and secrets.
    pub fn vault(&self) -> Vault {
        Vault::open(&self.paths.config, self.user_environment.keyring_bus())
    }

    /// Opens the provider of a spec.
    pub fn provider(&self, spec: &Spec) -> Result<Box<dyn Provider>> {
        providers::find(spec.provider.name())?.open(&spec.provider.settings(), &self.context())
    }
}
