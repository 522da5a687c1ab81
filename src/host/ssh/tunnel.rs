//! A port of this machine that leads to a port on a host: the listener is ours, and outlives every connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};

use super::SshHost;
use crate::error::{Doing as _, ErrorKind, Result};
use crate::util::random;

/// How long a connection waits for a way to the host.
const WAY_WITHIN: Duration = Duration::from_secs(30);

/// A listener on 127.0.0.1 that leads to a host. Dropping it closes it and all its connections.
#[derive(Debug)]
pub struct Tunnel {
    port: u16,
    task: JoinHandle<()>,
}

struct Way {
    host: Arc<SshHost>,
    to: (String, u16),
    socket: PathBuf,
    opened: Mutex<bool>,
}

impl Tunnel {
    /// Opens it on this port, or on any; `sockets` is a short folder.
    pub async fn open(host: Arc<SshHost>, port: Option<u16>, to: (String, u16), sockets: PathBuf) -> Result<Self> {
        let doing = || format!("listen on 127.0.0.1:{}", port.unwrap_or_default());
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or_default()));
        let listener = TcpListener::bind(address).await.doing(ErrorKind::Host, doing)?;
        let port = listener.local_addr().doing(ErrorKind::Host, doing)?.port();
        let socket = sockets.join(format!("t-{}", random::letters(8)?));
        let way = Arc::new(Way { host, to, socket, opened: Mutex::new(false) });
        Ok(Self { port, task: tokio::spawn(serve(listener, way)) })
    }

    /// Its port on this machine.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        let _ = fs_err::remove_file(&self.socket);
    }
}

async fn serve(listener: TcpListener, way: Arc<Way>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            Ok((client, _)) = listener.accept() => {
                open.spawn(pass(client, way.clone()));
            }
            Some(_) = open.join_next() => {}
            else => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn pass(mut client: TcpStream, way: Arc<Way>) {
    match tokio::time::timeout(WAY_WITHIN, way.connect()).await {
        Ok(Some(mut server)) => {
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        }
        _ => {
            let _ = client.shutdown().await;
        }
    }
}

impl Way {
    /// A connection to the other end; makes a new way there when the old one is gone.
    async fn connect(&self) -> Option<UnixStream> {
        loop {
            let mut opened = self.opened.lock().await;
            // The master's socket outlives a host that is gone: the master itself is asked.
            if *opened
                && self.host.is_connected().await
                && let Ok(stream) = UnixStream::connect(&self.socket).await
            {
                return Some(stream);
            }
            if *opened {
                self.host.disconnect().await;
            }
            *opened = self.host.forward(&self.socket, (&self.to.0, self.to.1)).await.is_ok();
            drop(opened);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
