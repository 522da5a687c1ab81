//! The hosts of a cluster that are this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::host::LocalHost;
use crate::name::Key;
use crate::provider::{HostPlace, UserEnvironment};
use crate::ray::{Access, shell_line};
use crate::runtime::project::{DATA_FOLDER, guards};
use crate::state::ClusterState;

/// The hosts of a cluster that are this machine: none, or one.
pub(super) struct Here {
    pub(super) state: ClusterState,
    /// The environment of the programs on it.
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) user: UserEnvironment,
    /// How Ray is reached, if the cluster runs.
    pub(super) access: Result<Access>,
}

impl Here {
    /// The host of this name, of its own or of a node on it, and its data folder.
    ///
    /// # Errors
    /// When the cluster has no host of that name.
    pub(super) fn host(&self, name: &str) -> Result<(LocalHost, PathBuf)> {
        let plain = |text: &str| text.replace('-', "");
        let mut known = Vec::new();
        for (key, folder) in folders(&self.state) {
            let nodes = self.state.started_nodes();
            let mut names = vec![key.display_name(), Key::head().display_name()];
            names.extend(nodes.iter().filter(|node| node.host == *key).map(|node| node.key.display_name()));
            if names.iter().any(|known| plain(known) == plain(name)) {
                let host = LocalHost::new(key.display_name(), folder.clone(), self.environment.iter().cloned())?;
                return Ok((host, folder.join(DATA_FOLDER)));
            }
            known.extend(names);
        }
        known.sort();
        known.dedup();
        Err(Error::new(ErrorKind::NotFound, format!("find the host {name}"))
            .because("the cluster has none of that name")
            .hint(format!("there are: {}", known.join(", "))))
    }

    /// The names of the hosts.
    pub(super) fn names(&self) -> Vec<String> {
        folders(&self.state).map(|(key, _)| key.display_name()).collect()
    }

    /// The variables that Ray's programs need; an error if the cluster does not run.
    pub(super) fn settings(&self) -> Result<Vec<(&'static str, Option<String>)>> {
        Ok(self.access.clone()?.settings(self.user.variable("PATH")))
    }

    /// What comes before a user's own command: Ray's environment, and the folder in which it was typed.
    pub(super) fn before_commands(&self) -> String {
        let mut program = String::new();
        for (name, value) in self.settings().unwrap_or_default() {
            match value {
                Some(value) => program.push_str(&format!("export {name}={}\n", shell_line(&[value]))),
                None => program.push_str(&format!("unset {name}\n")),
            }
        }
        program + &format!("cd {} && ", shell_line(&[self.user.here.to_string_lossy()]))
    }

    /// The log files of the nodes, by name.
    pub(super) fn logs(&self) -> Vec<(String, PathBuf)> {
        let nodes = self.state.started_nodes();
        nodes.iter().filter_map(|node| self.log(&node.host, node.key.display_name())).collect()
    }

    /// The log files of the services and the supervisor, by name: they are beside the head.
    pub(super) fn logs_beside(&self) -> Vec<(String, PathBuf)> {
        let nodes = self.state.started_nodes();
        let (Some(head), Some(spec)) = (nodes.first(), self.state.spec.as_ref()) else { return Vec::new() };
        let store = spec.own_store().map(|_| Key::object_store());
        let guards = guards(spec, std::slice::from_ref(&head.host)).into_iter().map(|(_, guard)| guard);
        let services = store.into_iter().chain(spec.own_mlflow().then(Key::mlflow)).chain(guards);
        let names = services.map(|key| key.display_name()).chain([SUPERVISOR.to_owned()]);
        names.filter_map(|name| self.log(&head.host, name)).collect()
    }

    fn log(&self, host: &Key, name: String) -> Option<(String, PathBuf)> {
        let (_, folder) = folders(&self.state).find(|(key, _)| *key == host)?;
        let path = folder.join(format!("logs/{name}.log"));
        Some((name, path))
    }
}

/// The process that watches the nodes.
const SUPERVISOR: &str = "supervisor";

/// The hosts that are this machine, and their folders.
fn folders(state: &ClusterState) -> impl Iterator<Item = (&Key, &PathBuf)> {
    state.hosts().filter_map(|(key, host)| match &host.place {
        Some(HostPlace::Local { folder, .. }) => Some((key, folder)),
        _ => None,
    })
}

/// The data folder of the host that is this machine.
pub(in crate::cluster) fn data_here(state: &ClusterState) -> Option<PathBuf> {
    folders(state).next().map(|(_, folder): (_, &PathBuf)| Path::join(folder, DATA_FOLDER))
}
