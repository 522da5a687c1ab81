//! One listener per page, and the passing on.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
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
use super::page::{Page, Run};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::random;

/// How long the head of a request may take, from the end of the one before; and how large it may be.
const HEAD_TIME: Duration = Duration::from_secs(10);
const HEAD_SIZE: usize = 64 * 1024;
/// How many connections are served at once.
const CONNECTIONS: usize = 256;
/// How many letters a key has: more than 160 bits.
const KEY_LENGTH: usize = 32;
/// How many free ports are tried: each must be free on both loopbacks.
const ATTEMPTS: usize = 16;

/// A page's open listener. Dropping it closes it and all its connections.
#[derive(Debug)]
pub struct Portal {
    served: Arc<Served>,
    port: u16,
    displaced: Option<u16>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Served {
    run: Run,
    page: Page,
    gate: Gate,
}

impl Portal {
    /// Opens a page on the loopback: on this `port` or none; else on the `usual` one; else on any. Its key is a new one.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn open(run: &Run, page: Page, usual: Option<u16>, port: Option<u16>) -> Result<Self> {
        let doing = || format!("open the page {}", page.name);
        let mut displaced = None;
        let listeners = match port.or(usual) {
            None => Listeners::any().await.doing(ErrorKind::Host, doing)?,
            Some(wanted) => match Listeners::on(wanted).await {
                Ok(listeners) => listeners,
                Err(error) if port.is_some() => {
                    return Err(Error::new(ErrorKind::Host, doing())
                        .because(format!("port {wanted} of the loopback cannot be had: {error}"))
                        .hint("leave --port out, a free one is taken then"));
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

    /// The page's name.
    pub fn name(&self) -> &str {
        &self.served.page.name
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The usual port, when somebody else has it now.
    pub fn displaced(&self) -> Option<u16> {
        self.displaced
    }

    /// The address with its key.
    pub fn url(&self) -> String {
        let gate = &self.served.gate;
        format!("http://{}/?{KEY_PARAMETER}={}", gate.host, gate.key.expose_secret())
    }

    /// The address with its key, as the start of addresses within it.
    pub fn prefix(&self) -> SecretString {
        let gate = &self.served.gate;
        format!("http://{}{KEY_PATH}{}", gate.host, gate.key.expose_secret()).into()
    }

    /// Closes the listener and all its connections, and waits until they are closed.
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

/// One port on both loopbacks. Browsers ask `[::1]` first for a name below `localhost`: whoever listened there would be sent
/// the key.
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
            // There is no such loopback here, so that nobody listens on it.
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
    // With the set the connections end as well.
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
            // No more file descriptors, say: others will be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// What belongs to one connection of a browser.
struct Connection {
    served: Arc<Served>,
    /// The other ends of its requests; they end with it.
    upstreams: Mutex<JoinSet<()>>,
    /// Both ends of what goes on as a WebSocket.
    sockets: mpsc::UnboundedSender<(OnUpgrade, OnUpgrade)>,
}

/// Serves one connection: requests one after the other, at last perhaps a WebSocket.
async fn one(browser: TcpStream, served: Arc<Served>) {
    let _ = browser.set_nodelay(true);
    let (sockets, mut upgraded) = mpsc::unbounded_channel();
    let connection = Arc::new(Connection { served, upstreams: Mutex::default(), sockets });
    let service = service_fn(|request| {
        let connection = Arc::clone(&connection);
        async move { Ok::<_, Infallible>(connection.answer(request).await) }
    });
    // A connection that breaks concerns nobody but its browser.
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
                let request = Request::from_parts(parts, Body::new(body));
                self.pass_on(request, browser).await.unwrap_or_else(|_| answer::is_down())
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
            return Err("it went on in another way than it was asked".into());
        }
        let answer = onward::answer(run, page, answer, upgrades);
        Ok(if asks { onward::with_grafana(page, answer).await? } else { answer })
    }

    /// Keeps the other end of a request going.
    fn drive(&self, driver: impl Future<Output = hyper::Result<()>> + Send + 'static) {
        let mut upstreams = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        while upstreams.try_join_next().is_some() {}
        upstreams.spawn(async move {
            let _ = driver.await;
        });
    }
}

/// Why the page gave no answer; it is not told in detail.
type Broken = Box<dyn std::error::Error + Send + Sync>;
