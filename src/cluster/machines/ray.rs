//! Ray's HTTP API of a cluster, from this machine.

use std::ops::Deref;
use std::sync::Arc;

use secrecy::SecretString;

use super::pods::{Bridge, DASHBOARD_PORT, RemotePort};
use super::{Kind, Machines};
use crate::cluster::errors::not_running;
use crate::error::Result;
use crate::host::Tunnel;
use crate::name::Key;
use crate::ray::Client;
use crate::state::ClusterState;

/// A Ray client, and what it goes through, which is open for as long as this lives.
pub struct RayClient {
    client: Client,
    _way: Way,
}

/// What a client goes through.
#[expect(dead_code, reason = "they are kept, not read")]
enum Way {
    /// Nothing: the head is on this machine.
    Direct,
    /// A tunnel to the head's host, and the folder of its socket.
    Tunnel(Tunnel, Arc<Machines>),
    /// A bridge to the head's pod.
    Bridge(Bridge),
}

impl Deref for RayClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Machines {
    /// Connects to Ray with the cluster's token.
    ///
    /// # Errors
    /// If the cluster does not run, or its head does not answer.
    pub async fn ray(self: &Arc<Self>, state: &ClusterState, token: SecretString) -> Result<RayClient> {
        match &self.0 {
            Kind::Here(here) => {
                let client = Client::new(here.access.clone()?.dashboard_url, token);
                Ok(RayClient { client, _way: Way::Direct })
            }
            Kind::Ssh(remote) => {
                let ports = state.host(&Key::host(0)).and_then(|host| host.ports.as_ref());
                let port = ports.ok_or_else(|| not_running(state))?.dashboard;
                let tunnel = Tunnel::open(remote.connect(remote.host("head")?).await?, port, 0).await?;
                let client = Client::new(format!("http://{}", tunnel.local()), token);
                Ok(RayClient { client, _way: Way::Tunnel(tunnel, Arc::clone(self)) })
            }
            Kind::Pods(pods) => {
                let names = pods.names().await?;
                let bridge = Bridge::open(Arc::clone(pods), RemotePort::head(DASHBOARD_PORT), 0).await?;
                let client = Client::new(format!("http://{}", bridge.local()), token).with_names(names);
                Ok(RayClient { client, _way: Way::Bridge(bridge) })
            }
        }
    }
}
