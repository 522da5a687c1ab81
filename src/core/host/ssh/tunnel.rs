//! Tunnels: a port of this machine's loopback that leads to a port of a host's loopback; and ways, private to this
//! process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use super::host::{Shared, SshHost};
use crate::error::{Doing as _, Error, ErrorKind, Result, Status};

/// How long a caller waits for a lost connection: the server restarts, or the network is down for a moment.
const COMES_BACK_WITHIN: Duration = Duration::from_secs(30);
/// Pause between attempts, each of which waits on its own too.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// A listener on this machine's loopback that leads to a port of a host's loopback. The next call after a lost
/// connection reconnects and waits for it. Dropping it closes the listener and all its streams.
#[derive(Debug)]
pub struct Tunnel {
    local: SocketAddr,
    task: JoinHandle<()>,
    _way: Way,
    _host: SshHost,
}

impl Tunnel {
    /// Listens on the loopback port `local`, or on any free port when it is 0.
    ///
    /// # Errors
    /// When the port is taken or the forward cannot be created. Whether anything listens there shows at the first use.
    pub async fn open(host: &SshHost, port: u16, local: u16) -> Result<Self> {
        Self::open_to(host, ("localhost", port), local).await
    }

    /// Listens on the loopback for a port of an address that the host reaches.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub async fn open_to(host: &SshHost, to: (&str, u16), local: u16) -> Result<Self> {
        let doing = || format!("listen on port {local} of the loopback");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await.doing(ErrorKind::Host, doing)?;
        let local = listener.local_addr().doing(ErrorKind::Host, doing)?;
        let way = Way::open_to(host, to).await?;
        let task = tokio::spawn(serve(listener, Arc::clone(&way.line)));
        Ok(Self { local, task, _way: way, _host: host.clone() })
    }

    /// The address it listens on.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Closes the listener and all its streams, and waits until they are closed.
    pub async fn close(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Access to a port of a host's loopback that only this process can use. The next call after a lost connection
/// reconnects and waits for it. It does not keep the host's connection open.
#[derive(Debug)]
pub struct Way {
    line: Arc<Line>,
}

impl Way {
    /// Opens a way to this port.
    ///
    /// # Errors
    /// When the forward cannot be created. Whether anything listens there shows at the first use.
    pub async fn open(host: &SshHost, port: u16) -> Result<Self> {
        Self::open_to(host, ("localhost", port)).await
    }

    async fn open_to(host: &SshHost, to: (&str, u16)) -> Result<Self> {
        let socket = host.forward_socket();
        host.forward(&socket, to).await?;
        let line = Line { shared: Arc::downgrade(&host.shared), socket, has_warned: AtomicBool::new(false) };
        Ok(Self { line: Arc::new(line) })
    }

    /// Opens a stream to the other end.
    ///
    /// # Errors
    /// When the host cannot be reached.
    pub async fn connect(&self) -> Result<UnixStream> {
        self.line.connect().await
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        let socket = &self.line.socket;
        if let Some(shared) = self.line.shared.upgrade() {
            shared.forwards().remove(socket);
        }
        let _ = fs_err::remove_file(socket);
    }
}

/// The forward that callers use. It holds no strong reference, since an aborted task ends at some later time.
#[derive(Debug)]
struct Line {
    shared: Weak<Shared>,
    socket: PathBuf,
    /// The current failure was reported already.
    has_warned: AtomicBool,
}

/// Accepts callers until aborted; each gets its own stream through the one connection.
async fn serve(listener: TcpListener, line: Arc<Line>) {
    // Dropping the set ends the streams as well.
    let mut streams = JoinSet::new();
    loop {
        while streams.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((caller, _)) => {
                let line = Arc::clone(&line);
                streams.spawn(async move { line.lead(caller).await });
            }
            // For example, no more file descriptors: others will be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

impl Line {
    async fn lead(&self, mut caller: TcpStream) {
        let Ok(mut there) = self.connect_or_warn().await else { return };
        let _ = caller.set_nodelay(true);
        // When one side hangs up, the other sees the end of its stream.
        let _ = tokio::io::copy_bidirectional(&mut caller, &mut there).await;
    }

    /// Connects to the host; warns on the first failure in a row.
    async fn connect_or_warn(&self) -> Result<UnixStream> {
        let reached = self.connect().await;
        match &reached {
            Ok(_) => self.has_warned.store(false, Ordering::Relaxed),
            Err(error) => {
                if let (false, Some(shared)) = (self.has_warned.swap(true, Ordering::Relaxed), self.shared.upgrade()) {
                    shared.route.warn(format!("{error}; the next call retries"));
                }
            }
        }
        reached
    }

    /// Opens a stream to the other end. All callers wait for the same new connection.
    async fn connect(&self) -> Result<UnixStream> {
        let doing = || "forward a connection to the host".to_owned();
        let mut last = None;
        let attempts = async {
            loop {
                match self.once().await {
                    Ok(there) => return Ok(there),
                    Err(error) if error.retry_status() == Status::Permanent => return Err(error.while_doing(doing())),
                    Err(error) => last = Some(error),
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        };
        let reached = tokio::time::timeout(COMES_BACK_WITHIN, attempts).await;
        reached.unwrap_or_else(|_| {
            let why = format!("it did not answer within {} s", COMES_BACK_WITHIN.as_secs());
            Err(last
                .take()
                .map_or_else(|| Error::new(ErrorKind::Host, doing()).because(why), |error| error.while_doing(doing())))
        })
    }

    async fn once(&self) -> Result<UnixStream> {
        let shared = self.shared.upgrade().ok_or_else(|| Error::new(ErrorKind::Host, "use a closed tunnel"))?;
        shared.live().await?;
        UnixStream::connect(&self.socket)
            .await
            .map_err(|error| Error::new(ErrorKind::Host, "use the forward").status(Status::Temporary).caused_by(&error))
    }
}

impl SshHost {
    /// A short path for a forward's socket, in this process's private folder.
    fn forward_socket(&self) -> PathBuf {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        self.shared.route.socket_dir().join(format!("f-{}", NUMBER.fetch_add(1, Ordering::Relaxed)))
    }
}
