//! A port of a machine, at one of this machine's loopback.

use std::net::SocketAddr;
use std::sync::Arc;

use super::pods::{Bridge, RemotePort, short};
use super::{Kind, Machines};
use crate::error::{Error, ErrorKind, Result};
use crate::host::Tunnel;

/// A port of this machine's loopback that leads to one of another machine, until this is closed or dropped.
pub struct Forward {
    machine: String,
    way: Way,
}

/// What it goes through.
enum Way {
    Tunnel(Tunnel),
    Bridge(Bridge),
}

impl Forward {
    /// The name of the machine.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// Where it listens.
    pub fn local(&self) -> SocketAddr {
        match &self.way {
            Way::Tunnel(tunnel) => tunnel.local(),
            Way::Bridge(bridge) => bridge.local(),
        }
    }

    /// Closes it, and waits until nothing listens.
    pub async fn close(self) {
        if let Way::Tunnel(tunnel) = self.way {
            tunnel.close().await;
        }
    }
}

impl Machines {
    /// Forwards a port of a machine's loopback from this local port, or without one from the same port if that is free,
    /// and else any. Lost connections are made again, and a head that is made again is found again.
    ///
    /// # Errors
    /// If there is no machine of that name, it is this one, it does not answer, or the local port is in use.
    pub async fn forward(&self, name: &str, port: u16, local: Option<u16>) -> Result<Forward> {
        match local {
            Some(local) => self.forward_from(local, name, port).await,
            None => match self.forward_from(port, name, port).await {
                Ok(forward) => Ok(forward),
                Err(_) => self.forward_from(0, name, port).await,
            },
        }
    }

    async fn forward_from(&self, local: u16, name: &str, port: u16) -> Result<Forward> {
        match &self.0 {
            Kind::Here(here) => Err(Error::new(ErrorKind::Unsupported, format!("forward {name}:{port}"))
                .because(format!("the hosts of {} are this machine", here.state.name))
                .hint(format!("use port {port} of this machine's loopback directly"))),
            Kind::Ssh(remote) => {
                let host = remote.host(name)?;
                let tunnel = Tunnel::open(remote.connect(host).await?, port, local).await?;
                Ok(Forward { machine: host.name().to_owned(), way: Way::Tunnel(tunnel) })
            }
            Kind::Pods(pods) => {
                let member = pods.named(name).await?;
                let machine = short(pods.scope(), &member);
                let far = RemotePort { member: (!member.is_head).then_some(member.name), port };
                Ok(Forward { machine, way: Way::Bridge(Bridge::open(Arc::clone(pods), far, local).await?) })
            }
        }
    }
}
