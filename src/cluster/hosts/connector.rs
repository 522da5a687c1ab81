//! Host connectors: each host is connected once, and every operation of a command shares the connection.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::cluster::settings::Settings;
use crate::engine::{Cancel, Urgency};
use crate::error::Result;
use crate::host::{Account, Connections, Host, HostEntry, LocalHost, SshHost, SshTarget};
use crate::name::Key;
use crate::provider::HostPlace;
use crate::providers;
use crate::runtime;
use crate::secret;
use crate::spec::Spec;

/// Connects to hosts, and caches the connections.
#[async_trait]
pub trait HostConnector: Send + Sync {
    /// Returns the host of this key, connected; later calls return the same connection.
    ///
    /// `home` is the folder for all our files on the host; `wait` is how long it may take to answer.
    async fn host(&self, key: &Key, place: &HostPlace, home: &str, wait: Duration) -> Result<Arc<dyn Host>>;

    /// Records the place of a host, so that others can be reached through it.
    async fn record_place(&self, key: &Key, place: &HostPlace);

    /// Drops the connection to a host that no longer exists; its key may be used again.
    async fn forget(&self, key: &Key);

    /// Reconnects to a host and replaces the cached connection: it proves that the firewall still lets us in.
    async fn fresh(&self, key: &Key, place: &HostPlace, home: &str, wait: Duration) -> Result<Arc<dyn Host>>;

    /// Has a connected host use a host key of its own in place of the one that was given to it, unless it does.
    async fn give_own_key(&self, key: &Key) -> Result<()>;
}

/// Connects by SSH, or to this machine.
pub(in crate::cluster) struct HostConnections {
    /// The complete environment of programs on this machine.
    environment: Vec<(OsString, OsString)>,
    connections: Connections,
    cancel: Cancel,
    account: Account,
    known: Mutex<BTreeMap<Key, HostEntry>>,
    hosts: Mutex<BTreeMap<Key, Arc<dyn Host>>>,
    /// Those that are reached by SSH, once more.
    by_ssh: Mutex<BTreeMap<Key, SshHost>>,
    folder: PathBuf,
}

impl HostConnections {
    /// Creates a connector for this cluster, whose state is in this folder; its runtime decides the account.
    ///
    /// # Errors
    /// If its provider is not known.
    pub(in crate::cluster) fn new(folder: &Path, spec: &Spec, settings: &Settings) -> Result<Self> {
        let (runtime_dir, home) = (settings.paths.runtime.clone(), settings.user_environment.home.clone());
        let connections = Connections::new(folder.to_owned(), runtime_dir, home, settings.events.clone());
        let are_made = providers::find(spec.provider.name())?.capability().hosts_vanish;
        Ok(Self {
            environment: settings.host_environment.clone(),
            connections: if are_made { connections.to_made_hosts() } else { connections },
            cancel: settings.cancel.clone(),
            account: runtime::of(spec.runtime).account(),
            known: Mutex::default(),
            hosts: Mutex::default(),
            by_ssh: Mutex::default(),
            folder: folder.to_owned(),
        })
    }

    async fn connect(&self, key: &Key, place: &HostPlace, home: &str, wait: Duration) -> Result<Arc<dyn Host>> {
        let target = match place {
            HostPlace::Ssh { target, .. } => target,
            HostPlace::Local { folder, .. } => {
                let environment = self.environment.iter().cloned();
                return Ok(Arc::new(LocalHost::new(key.display_name(), folder.clone(), environment)?));
            }
        };
        {
            let mut known = self.known.lock().await;
            known.insert(key.clone(), entry(key, target));
            let entries = HostEntry::with_login(known.values().cloned());
            self.connections.write(&entries)?;
        }
        let stop = self.cancel.at_least(Urgency::Finish);
        let host = self.connections.connect(&key.display_name(), home.to_owned(), wait, stop).await?;
        self.by_ssh.lock().await.insert(key.clone(), host.clone());
        Ok(Arc::new(host.by(self.account)))
    }
}

/// A host's entry in the SSH configuration.
fn entry(key: &Key, target: &SshTarget) -> HostEntry {
    let mut names = vec![key.display_name()];
    if *key == Key::host(0) {
        names.push("head".to_owned());
    }
    HostEntry { names, target: target.clone() }
}

#[async_trait]
impl HostConnector for HostConnections {
    async fn record_place(&self, key: &Key, place: &HostPlace) {
        if let HostPlace::Ssh { target, .. } = place {
            self.known.lock().await.insert(key.clone(), entry(key, target));
        }
    }

    async fn forget(&self, key: &Key) {
        self.hosts.lock().await.remove(key);
        self.by_ssh.lock().await.remove(key);
        self.known.lock().await.remove(key);
    }

    async fn host(&self, key: &Key, place: &HostPlace, home: &str, wait: Duration) -> Result<Arc<dyn Host>> {
        if let Some(host) = self.hosts.lock().await.get(key) {
            return Ok(Arc::clone(host));
        }
        self.fresh(key, place, home, wait).await
    }

    async fn fresh(&self, key: &Key, place: &HostPlace, home: &str, wait: Duration) -> Result<Arc<dyn Host>> {
        let host = self.connect(key, place, home, wait).await?;
        self.hosts.lock().await.insert(key.clone(), Arc::clone(&host));
        Ok(host)
    }

    async fn give_own_key(&self, key: &Key) -> Result<()> {
        let Some(host) = self.by_ssh.lock().await.get(key).cloned() else { return Ok(()) };
        // First: what is created in its place must not get a key that is no longer accepted.
        secret::forget_private_key(&self.folder, key.as_str())?;
        self.connections.give_own_key(&host).await
    }
}
