//! What a provider is opened with.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::event::Bus;

/// What a provider is opened with. The command line creates it; the core does not read the environment.
#[derive(Debug, Clone)]
pub struct Context {
    /// The folder for data of hosts on this machine.
    pub data_dir: PathBuf,
    /// The folder for data that can be recreated.
    pub cache_dir: PathBuf,
    /// A folder with a short path, for sockets.
    pub runtime_dir: PathBuf,
    /// The folder with one folder per cluster, by name; the SSH keys of its hosts are there.
    pub clusters_dir: PathBuf,
    /// The caller's home, XDG folders and environment variables.
    pub user_environment: UserEnvironment,
    /// Where progress, notes and warnings are sent.
    pub events: Bus,
}

/// The caller's home, XDG folders and environment variables, as read by the command line.
#[derive(Debug, Clone, Default)]
pub struct UserEnvironment {
    /// The environment variables that are valid UTF-8.
    pub variables: BTreeMap<String, String>,
    /// The user's home directory.
    pub home: PathBuf,
    /// The configuration folder, `~/.config` by default.
    pub config_home: PathBuf,
    /// gpucl's folder within `config_home`.
    pub config_dir: PathBuf,
    /// The current working directory.
    pub here: PathBuf,
}

impl UserEnvironment {
    /// The value of a variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The address of the D-Bus session bus, for the desktop keyring; `None` if unset, or with `GPUCL_KEYRING=off`.
    pub fn keyring_bus(&self) -> Option<&str> {
        self.variable("DBUS_SESSION_BUS_ADDRESS").filter(|_| self.variable("GPUCL_KEYRING") != Some("off"))
    }
}
