//! The nodes of a cluster on a platform, and ways to them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::name::Scope;
use crate::provider::platform::{Duplex, Member};
use crate::provider::{Context, Platform, Provider};
use crate::providers;
use crate::state::ClusterState;

/// The port of Ray's dashboard and job API on the head.
pub const DASHBOARD_PORT: u16 = 8265;
/// The port of Ray's client server on the head.
pub const CLIENT_PORT: u16 = 10001;
/// The port of Serve's applications on the head's loopback.
pub(in crate::cluster) const SERVE_PORT: u16 = 8000;
/// The pause before what may come back is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a connection to the head is tried again: it may be made again, or the API server be away.
const HEAD_TRIES: ConstantBuilder = ConstantBuilder::new().with_delay(PAUSE).with_max_times(4);

/// The nodes of a cluster on a platform.
pub struct Pods {
    provider: Box<dyn Provider>,
    scope: Scope,
    /// The head that was connected to last.
    head: Mutex<Option<String>>,
}

impl Pods {
    /// The nodes of this cluster at this provider.
    pub(in crate::cluster) fn new(provider: Box<dyn Provider>, scope: Scope) -> Arc<Self> {
        Arc::new(Self { provider, scope, head: Mutex::default() })
    }

    /// The nodes of a cluster, from its state; `None` if it does not run on a platform.
    pub fn of(state: &ClusterState, context: &Context) -> Result<Option<Arc<Self>>> {
        let (Some(spec), Some(_)) = (&state.spec, state.platform()) else { return Ok(None) };
        let provider = providers::find(spec.provider.name())?.open(&spec.provider.settings(), context)?;
        Ok(Some(Self::new(provider, state.scope())))
    }

    /// The provider.
    pub(in crate::cluster) fn provider(&self) -> &dyn Provider {
        self.provider.as_ref()
    }

    /// The owner and the cluster.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// What the provider does as a platform.
    pub fn platform(&self) -> Result<&dyn Platform> {
        self.provider.platform().ok_or_else(|| {
            Error::new(ErrorKind::Internal, "use the provider").because("it says that it is a platform, and is none")
        })
    }

    /// The nodes, the head first.
    pub async fn members(&self) -> Result<Vec<Member>> {
        self.platform()?.members(&self.scope).await
    }

    /// The nodes' short names, by their addresses.
    pub async fn names(&self) -> Result<BTreeMap<String, String>> {
        let members = self.members().await?;
        // The next connection is often one to the head.
        if let Some(head) = members.iter().find(|member| member.is_head && member.ready) {
            *self.head.lock().await = Some(head.name.clone());
        }
        let name = |member: &Member| Some((member.address.clone()?, short(&self.scope, member)));
        Ok(members.iter().filter_map(name).collect())
    }

    /// The node of this name: `head`, the platform's own name, the end of it that only one has, or a group of one.
    pub async fn named(&self, name: &str) -> Result<Member> {
        let members = self.members().await?;
        let exact = members.iter().find(|member| member.name == name || (member.is_head && name == "head"));
        let fits = |member: &&Member| short(&self.scope, member).ends_with(name) || member.group == name;
        let ending: Vec<&Member> = members.iter().filter(fits).collect();
        match (exact, ending.as_slice()) {
            (Some(found), _) => Ok(found.clone()),
            (None, [found]) => Ok((*found).clone()),
            (None, others) => {
                let why =
                    if others.is_empty() { "the cluster has none of that name" } else { "several have that name" };
                let known: Vec<String> = members.iter().map(|member| short(&self.scope, member)).collect();
                Err(Error::new(ErrorKind::NotFound, format!("find the node {name}"))
                    .because(why)
                    .hint(format!("there are: {}", known.join(", "))))
            }
        }
    }

    /// The worker of this name.
    pub async fn worker(&self, name: &str) -> Result<Member> {
        let member = self.named(name).await?;
        if member.is_head {
            return Err(Error::new(ErrorKind::Usage, format!("kill {name}"))
                .because("the head is not a worker: without it there is no cluster"));
        }
        Ok(member)
    }

    /// Connects to a port of a node, or of the head, wherever that is by now.
    async fn connect(&self, to: &RemotePort) -> Result<Box<dyn Duplex>> {
        match &to.member {
            Some(member) => self.platform()?.connect(member, to.port).await,
            None => self.connect_head(to.port).await,
        }
    }

    async fn connect_head(&self, port: u16) -> Result<Box<dyn Duplex>> {
        let connect = async || {
            let known = self.head.lock().await.clone();
            let head = match known {
                Some(head) => head,
                None => self.find_head().await?,
            };
            let stream = self.platform()?.connect(&head, port).await;
            *self.head.lock().await = stream.is_ok().then_some(head);
            stream
        };
        connect.retry(HEAD_TRIES).await
    }

    async fn find_head(&self) -> Result<String> {
        let members = self.members().await?;
        let head = members.into_iter().find(|member| member.is_head && member.ready);
        head.map(|head| head.name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("reach the head of {}", self.scope.cluster)).because("none runs")
        })
    }
}

/// A node's name without what all nodes of the cluster begin with.
pub(in crate::cluster) fn short(scope: &Scope, member: &Member) -> String {
    if member.is_head {
        return "head".to_owned();
    }
    let begin = format!("{}-{}-", scope.cluster, scope.owner);
    member.name.strip_prefix(&begin).unwrap_or(&member.name).to_owned()
}

/// A port of a node.
#[derive(Debug, Clone)]
pub struct RemotePort {
    /// The platform's name of the node; the head, wherever it is by then, when absent.
    pub member: Option<String>,
    /// The port on its loopback.
    pub port: u16,
}

impl RemotePort {
    /// A port of the head.
    pub fn head(port: u16) -> Self {
        Self { member: None, port }
    }
}

/// A port of this machine's loopback that leads to one of a node, until this is dropped.
pub struct Bridge {
    local: SocketAddr,
    serving: tokio::task::JoinHandle<()>,
}

impl Bridge {
    /// Opens a bridge from this port of the loopback, or a free one for 0.
    ///
    /// # Errors
    /// If the port is in use. A node that cannot be reached closes the connection that asked for it, and no other.
    pub async fn open(pods: Arc<Pods>, to: RemotePort, local: u16) -> Result<Self> {
        let doing = || format!("listen on port {local} of the loopback");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await.doing(ErrorKind::Host, doing)?;
        let address = listener.local_addr().doing(ErrorKind::Host, doing)?;
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((stream, _)) => {
                            connections.spawn(carry(Arc::clone(&pods), to.clone(), stream));
                        }
                        // No file descriptor is free, for now.
                        Err(_) => tokio::time::sleep(PAUSE).await,
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self { local: address, serving })
    }

    /// Where it listens.
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Carries one connection until one side ends.
async fn carry(pods: Arc<Pods>, to: RemotePort, mut stream: TcpStream) {
    if let Ok(mut there) = pods.connect(&to).await
        && tokio::io::copy_bidirectional(&mut stream, &mut there).await.is_err()
    {
        // The head may have gone with its connections: the next one looks for it.
        *pods.head.lock().await = None;
    }
}
