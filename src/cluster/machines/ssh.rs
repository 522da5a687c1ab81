//! The hosts of a cluster that are reached by SSH, and their connections.

use std::time::Duration;

use tokio::sync::OnceCell;

use crate::error::{Error, ErrorKind, Result};
use crate::host::{Connections, HostEntry, SshHost, SshTarget};
use crate::name::{Key, Tag};
use crate::provider::{Context, HostPlace, Site};
use crate::providers;
use crate::runtime;
use crate::runtime::project::{HostFolders, ProjectRuntime};
use crate::state::{ClusterState, ItemKind, Paths};

/// Timeout of a connection to a host that is up.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// A host that is reached by SSH.
pub(in crate::cluster) struct RemoteHost {
    /// The host's key in the state.
    pub key: Key,
    /// Its tag, which also names its folder on the host.
    pub tag: Tag,
    /// Its display names: `host-0` first, then its nodes such as `head`, `worker-0`.
    pub names: Vec<String>,
    /// How to connect to it.
    pub target: SshTarget,
    /// What is particular about it.
    pub site: Site,
    /// The runtime of its nodes.
    pub runtime: &'static dyn ProjectRuntime,
    /// The connection to it, from its first use on.
    ssh: OnceCell<SshHost>,
}

impl RemoteHost {
    /// The display name, such as `host-0`.
    pub(super) fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// The cluster's folders on the host.
    pub(super) fn folders(&self) -> HostFolders {
        self.runtime.folders_of(&self.tag.to_string()).at_site(&self.site)
    }

    /// The folder on the host that holds all files of the cluster.
    pub(super) fn home(&self) -> String {
        self.folders().home
    }
}

/// The remote hosts of a cluster and their connections.
pub(in crate::cluster) struct Remote {
    /// The connections, whose `ssh_config` is already written.
    pub connections: Connections,
    /// The hosts by number.
    pub hosts: Vec<RemoteHost>,
}

impl Remote {
    /// The connection to one of the hosts: one for all who ask, open as long as the hosts are known.
    ///
    /// # Errors
    /// If it does not answer in time.
    pub(super) async fn connect<'a>(&self, host: &'a RemoteHost) -> Result<&'a SshHost> {
        let connect = || self.connections.connect(host.name(), host.home(), ANSWERS_WITHIN, std::future::pending());
        host.ssh.get_or_try_init(connect).await
    }

    /// The host of this name, or the head's.
    pub(super) fn host_or_head(&self, name: Option<&str>) -> Result<&RemoteHost> {
        match name {
            Some(name) => self.host(name),
            None => self.host("head").or_else(|_| self.host("host-0")),
        }
    }

    /// Finds a host by display name (`host-0`, `head`, `worker-1`, or without the hyphen) or by address.
    pub(super) fn host(&self, name: &str) -> Result<&RemoteHost> {
        let plain = |text: &str| text.replace('-', "");
        self.hosts
            .iter()
            .find(|host| host.names.iter().any(|known| plain(known) == plain(name) || host.target.node == name))
            .ok_or_else(|| {
                let known: Vec<&str> =
                    self.hosts.iter().flat_map(|host| host.names.iter().map(String::as_str)).collect();
                Error::new(ErrorKind::NotFound, format!("find the host {name}"))
                    .because("the cluster has none of that name")
                    .hint(format!("there are: {}", known.join(", ")))
            })
    }
}

/// Rewrites the connections to a cluster's hosts from its state; `None` if no host is reached by SSH.
pub(in crate::cluster) async fn remote(
    paths: &Paths,
    state: &ClusterState,
    context: &Context,
) -> Result<Option<Remote>> {
    let (events, home) = (context.events.clone(), context.user_environment.home.clone());
    let hosts = remote_hosts(state, context).await?;
    if hosts.is_empty() {
        return Ok(None);
    }
    let connections = Connections::new(paths.cluster(&state.name), paths.runtime.clone(), home, events);
    let provider = state.spec.as_ref().map(|spec| providers::find(spec.provider.name())).transpose()?;
    let are_made = provider.is_some_and(|provider| provider.capability().hosts_vanish);
    let connections = if are_made { connections.to_made_hosts() } else { connections };
    let entry = |host: &RemoteHost| HostEntry { names: host.names.clone(), target: host.target.clone() };
    let entries = HostEntry::with_login(hosts.iter().map(entry));
    connections.write(&entries)?;
    Ok(Some(Remote { connections, hosts }))
}

/// Lists the hosts reached by SSH, with their place from the state or else from the provider.
async fn remote_hosts(state: &ClusterState, context: &Context) -> Result<Vec<RemoteHost>> {
    let Some(spec) = &state.spec else { return Ok(Vec::new()) };
    let (nodes, runtime) = (state.started_nodes(), runtime::of(spec.runtime));
    let mut hosts = Vec::new();
    for (key, item) in &state.items {
        let (ItemKind::Resource(_), Some(id)) = (&item.kind, &item.id) else { continue };
        let Some(number) = number_of(key) else { continue };
        let tag = state.scope().tag(key);
        // The place recorded at acquisition saves a call to the provider.
        let place = match state.host(key).and_then(|host| host.place.clone()) {
            Some(place) => place,
            None => {
                let provider = providers::find(spec.provider.name())?.open(&spec.provider.settings(), context)?;
                provider.place(&tag, id).await?
            }
        };
        let HostPlace::Ssh { target, site } = place else { continue };
        let of_nodes = nodes.iter().filter(|node| node.host == *key).map(|node| node.key.display_name());
        let mut names: Vec<String> = std::iter::once(key.display_name()).chain(of_nodes).collect();
        // The head's host is known before the nodes run.
        if number == 0 && !nodes.iter().any(|node| node.key == Key::head()) {
            names.push(Key::head().display_name());
        }
        hosts.push((
            number,
            RemoteHost { key: key.clone(), tag, names, target, site: *site, runtime, ssh: OnceCell::new() },
        ));
    }
    hosts.sort_by_key(|(number, _)| *number);
    Ok(hosts.into_iter().map(|(_, host)| host).collect())
}

/// The number in a host's key; `None` for the keys of other resources.
fn number_of(key: &Key) -> Option<usize> {
    key.as_str().strip_prefix("host")?.parse().ok()
}
