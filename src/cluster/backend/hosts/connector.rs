//! How the world gets at its hosts: connected once, used by every operation of a command.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::cluster::Settings;
use crate::engine::{Cancel, Urgency};
use crate::error::Result;
use crate::host::{Account, Connections, Host, HostEntry, LocalHost, SshTarget};
use crate::name::Key;
use crate::provider::HostPlace;
use crate::provider::Runtime;
use crate::runtime::project;

/// How the world gets at its hosts.
#[async_trait]
pub trait HostConnector: Send + Sync {
    /// The host of this key, connected; the second call hands back the same connection.
    ///
    /// `home` is the folder on it that holds everything of ours; `wait` is how long it may take to answer at all.
    async fn host(&self, key: &Key, place: &HostPlace, home: &str, wait: Duration) -> Result<Arc<dyn Host>>;

    /// Learns where a host is, so that others can be reached through it.
    async fn know(&self, key: &Key, place: &HostPlace);

    /// Forgets the connection to a host that is no more; another will be there under its key.
    async fn forget(&self, key: &Key);

    /// The same host over a new connection, from now on for everybody: it proves that one can still get in.
    async fn fresh(&self, key: &Key, place: &HostPlace, home: &str, wait: Duration) -> Result<Arc<dyn Host>>;
}

/// Hosts by SSH, and this machine.
pub(in crate::cluster) struct HostConnections {
    /// All of the environment that programs on this machine have.
    environment: Vec<(OsString, OsString)>,
    connections: Connections,
    cancel: Cancel,
    account: Account,
    known: Mutex<BTreeMap<Key, HostEntry>>,
    hosts: Mutex<BTreeMap<Key, Arc<dyn Host>>>,
}

impl HostConnections {
    /// Makes it of the folder of the cluster's state; the runtime says as whom programs run.
    pub(in crate::cluster) fn new(folder: &Path, runtime: Runtime, settings: &Settings) -> Self {
        let (runtime_dir, home) = (settings.paths.runtime.clone(), settings.user_environment.home.clone());
        Self {
            environment: settings.host_environment.clone(),
            connections: Connections::new(folder.to_owned(), runtime_dir, home, settings.events.clone()),
            cancel: settings.cancel.clone(),
            account: project::of(runtime).account(),
            known: Mutex::default(),
            hosts: Mutex::default(),
        }
    }

    async fn connect(&self, key: &Key, place: &HostPlace, home: &str, wait: Duration) -> Result<Arc<dyn Host>> {
        let target = match place {
            HostPlace::Ssh { target } => target,
            HostPlace::Local { folder, .. } => {
                let environment = self.environment.iter().cloned();
                return Ok(Arc::new(LocalHost::new(key.display_name(), folder.clone(), environment)?));
            }
        };
        {
            let mut known = self.known.lock().await;
            known.insert(key.clone(), entry(key, target));
            let entries: Vec<HostEntry> = known.values().cloned().collect();
            self.connections.write(&entries)?;
        }
        let stop = self.cancel.at_least(Urgency::Finish);
        let host = self.connections.connect(&key.display_name(), home.to_owned(), wait, stop).await?;
        Ok(Arc::new(host.by(self.account)))
    }
}

/// A host by its names.
fn entry(key: &Key, target: &SshTarget) -> HostEntry {
    let mut names = vec![key.display_name()];
    if *key == Key::host(0) {
        names.push("head".to_owned());
    }
    HostEntry { names, target: target.clone() }
}

#[async_trait]
impl HostConnector for HostConnections {
    async fn know(&self, key: &Key, place: &HostPlace) {
        if let HostPlace::Ssh { target } = place {
            self.known.lock().await.insert(key.clone(), entry(key, target));
        }
    }

    async fn forget(&self, key: &Key) {
        self.hosts.lock().await.remove(key);
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
}
