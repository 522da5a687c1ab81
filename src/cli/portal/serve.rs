//! One listener per page, and the forwarding of requests.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{client, server};
use hyper_util::rt::{TokioIo, TokioTimer};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};

use super::answer;
use super::gate::{Gate, KEY_PARAMETER, KEY_PATH, Verdict, is_upgrade};
use super::onward;
use super::page::{Down, Page, PortalRun};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::random;

/// Timeout for the head of a request, from the end of the previous one.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Size limit of the head of a request, in bytes.
const HEAD_SIZE: usize = 64 * 1024;
/// The most concurrent connections per page.
const CONNECTIONS: usize = 256;
/// Letters in a key: more than 160 bits.
const KEY_LENGTH: usize = 32;
/// How many ports are tried: one must be free on both loopbacks.
const ATTEMPTS: usize = 16;

/// The open listener of a page. Dropping it closes it and all its connections.
#[derive(Debug)]
pub struct Portal {
    served: Arc<Served>,
    port: u16,
    displaced: Option<u16>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Served {
    run: PortalRun,
    page: Page,
    gate: Gate,
}

impl Portal {
    /// Opens a page on the loopback with a new key: on `port` if given, or fails; else on `usual` if free, else on any
    /// port.
    ///
    /// # Errors
    /// If it cannot listen, or the system provides no random bytes.
    pub async fn open(run: &PortalRun, page: Page, usual: Option<u16>, port: Option<u16>) -> Result<Self> {
        let doing = || format!("open the page {}", page.name);
        let mut displaced = None;
        let listeners = match port.or(usual) {
            None => Listeners::any().await.doing(ErrorKind::Host, doing)?,
            Some(wanted) => match Listeners::on(wanted).await {
                Ok(listeners) => listeners,
                Err(error) if port.is_some() => {
                    return Err(Error::new(ErrorKind::Host, doing())
                        .because(format!("port {wanted} of the loopback is not available: {error}"))
                        .hint("omit --port to use a free one"));
                }
                Err(_) => {
                    displaced = Some(wanted);
                    Listeners::any().await.doing(ErrorKind::Host, doing)?
                }
            },
        };
        let port = listeners.port().doing(ErrorKind::Host, doing)?;
        let gate = Gate::new(run, &page, port, random::letters(KEY_LENGTH)?.into());
        let served = Arc::new(Served { run: run.clone(), page, gate });
        let task = tokio::spawn(serve(listeners, Arc::clone(&served)));
        Ok(Self { served, port, displaced, task })
    }

    /// The name of the page.
    pub fn name(&self) -> &str {
        &self.served.page.name
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The usual port, if another process holds it.
    pub fn displaced(&self) -> Option<u16> {
        self.displaced
    }

    /// The address of the page, with its key as a query parameter.
    pub fn url(&self) -> String {
        self.url_of("/")
    }

    /// The address of a path of the page, with its key as a query parameter.
    pub fn url_of(&self, path: &str) -> String {
        let gate = &self.served.gate;
        format!("http://{}{path}?{KEY_PARAMETER}={}", gate.host, gate.key.expose_secret())
    }

    /// The address of the page, with its key in the path, as a prefix for addresses below it.
    pub fn prefix(&self) -> SecretString {
        let gate = &self.served.gate;
        format!("http://{}{KEY_PATH}{}", gate.host, gate.key.expose_secret()).into()
    }

    /// Closes the listener and all its connections, and waits for them.
    pub async fn close(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One port on both loopbacks. For a name below `localhost` browsers try `[::1]` first: another listener there would
/// receive the key.
struct Listeners {
    four: TcpListener,
    six: Option<TcpListener>,
}

impl Listeners {
    async fn on(port: u16) -> io::Result<Self> {
        let four = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let six = match TcpListener::bind((Ipv6Addr::LOCALHOST, four.local_addr()?.port())).await {
            Ok(six) => Some(six),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            // This machine has no IPv6 loopback, so nobody can listen on it.
            Err(_) => None,
        };
        Ok(Self { four, six })
    }

    async fn any() -> io::Result<Self> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            match Self::on(0).await {
                Ok(listeners) => return Ok(listeners),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
    }

    fn port(&self) -> io::Result<u16> {
        Ok(self.four.local_addr()?.port())
    }

    async fn accept(&self) -> io::Result<TcpStream> {
        let six = async {
            match &self.six {
                Some(six) => six.accept().await,
                None => std::future::pending().await,
            }
        };
        let (stream, _) = tokio::select! {
            accepted = self.four.accept() => accepted,
            accepted = six => accepted,
        }?;
        Ok(stream)
    }
}

async fn serve(listeners: Listeners, served: Arc<Served>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    // Dropping the set ends the connections as well.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(seat) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        match listeners.accept().await {
            Ok(browser) => {
                let served = Arc::clone(&served);
                connections.spawn(async move {
                    one(browser, served).await;
                    drop(seat);
                });
            }
            // For example, out of file descriptors: wait until others are closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// One connection of a browser.
struct Connection {
    served: Arc<Served>,
    /// The connections to the page for its requests; they end with it.
    upstreams: Mutex<JoinSet<()>>,
    /// Receives both ends of a connection that is upgraded to a WebSocket.
    sockets: mpsc::UnboundedSender<(OnUpgrade, OnUpgrade)>,
}

/// Serves one connection: requests one after the other, then perhaps a WebSocket.
async fn one(browser: TcpStream, served: Arc<Served>) {
    let _ = browser.set_nodelay(true);
    let (sockets, mut upgraded) = mpsc::unbounded_channel();
    let connection = Arc::new(Connection { served, upstreams: Mutex::default(), sockets });
    let service = service_fn(|request| {
        let connection = Arc::clone(&connection);
        async move { Ok::<_, Infallible>(connection.answer(request).await) }
    });
    // A broken connection concerns only its browser.
    let _ = server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_SIZE)
        .max_header_size(HEAD_SIZE)
        .serve_connection(TokioIo::new(browser), service)
        .with_upgrades()
        .await;
    if let Ok((browser, page)) = upgraded.try_recv()
        && let (Ok(browser), Ok(page)) = tokio::join!(browser, page)
    {
        let (mut browser, mut page) = (TokioIo::new(browser), TokioIo::new(page));
        let _ = tokio::io::copy_bidirectional(&mut browser, &mut page).await;
    }
}

impl Connection {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        let browser = hyper::upgrade::on(&mut request);
        let (parts, body) = request.into_parts();
        match self.served.gate.judge(&parts) {
            Verdict::Refuse(refusal) => answer::refuse(refusal),
            Verdict::Welcome { location, crosses } => answer::welcome(&self.served.gate, &location, crosses),
            Verdict::Pass => {
                // Only a page that somebody looks at explains itself: its scripts ask again and again.
                let is_seen = wants_html(&parts.headers);
                let request = Request::from_parts(parts, Body::new(body));
                match self.pass_on(request, browser).await {
                    Ok(answer) => answer,
                    Err(_) if is_seen => answer::is_down(&self.served.run.why_down().await),
                    Err(_) => answer::is_down(&Down::default()),
                }
            }
        }
    }

    async fn pass_on(&self, request: Request<Body>, browser: OnUpgrade) -> std::result::Result<Response<Body>, Broken> {
        let Served { run, page, gate } = &*self.served;
        let (mut parts, body) = request.into_parts();
        let (upgrades, asks) = (is_upgrade(&parts.headers), onward::asks_for_grafana(page, &parts));
        if onward::request(page, gate, &mut parts).is_none() {
            return Ok(answer::refuse(super::gate::Refusal::Malformed));
        }
        let stream = page.upstream.connect().await?;
        let (mut sender, driver) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
        self.drive(driver.with_upgrades());
        let mut answer = sender.send_request(Request::from_parts(parts, body)).await?;
        let upgrades = upgrades && answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        if upgrades {
            let _ = self.sockets.send((browser, hyper::upgrade::on(&mut answer)));
        } else if answer.status().is_informational() {
            return Err("the page switched protocols without a request".into());
        }
        let answer = onward::answer(run, page, answer, upgrades);
        Ok(if asks { onward::with_grafana(page, answer).await? } else { answer })
    }

    /// Drives the connection to the page in the background.
    fn drive(&self, driver: impl Future<Output = hyper::Result<()>> + Send + 'static) {
        let mut upstreams = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        while upstreams.try_join_next().is_some() {}
        upstreams.spawn(async move {
            let _ = driver.await;
        });
    }
}

/// Whether the answer is for a person to read.
fn wants_html(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).is_some_and(|accept| accept.contains("text/html"))
}

/// Why the page gave no answer; not shown in detail.
type Broken = Box<dyn std::error::Error + Send + Sync>;
