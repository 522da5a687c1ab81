//! The pages behind the portal, and the host names of a run.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;

use crate::error::Result;
use crate::host::Way;
use crate::util::random;

/// Connect timeout of a page on this machine. A page on a remote host has the timeout of its `Way`.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Timeout of the question what happened: a browser waits for it.
const EXPLAIN_TIME: Duration = Duration::from_secs(10);
/// How long an answer to it holds: a page that is down is asked for by many requests at once.
const FRESH: Duration = Duration::from_secs(2);
/// Letters in the name of a run: more than 120 bits.
const NAME_LENGTH: usize = 24;

/// One run of the portal: what its pages share.
#[derive(Debug, Clone)]
pub struct PortalRun {
    /// Makes the names of pages and cookies unique to this run.
    pub(super) random: String,
    /// Whether pages have names; otherwise they are at 127.0.0.1.
    pub(super) has_names: bool,
    /// Asks what happened, when a page does not answer.
    explain: Option<Explain>,
}

/// A question why a page does not answer, with where the answer goes.
pub type Question = oneshot::Sender<Down>;

/// Asks what happened, once for several requests at a time.
#[derive(Debug, Clone)]
struct Explain {
    ask: mpsc::Sender<Question>,
    last: Arc<Mutex<Option<(Instant, Down)>>>,
}

/// Why a page does not answer, as far as that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Down {
    /// What happened, in sentences without a full stop.
    pub happened: Vec<String>,
    /// Whether it comes back by itself.
    pub comes_back: bool,
}

impl PortalRun {
    /// A run whose pages have names.
    ///
    /// # Errors
    /// If the system provides no random bytes.
    pub fn named() -> Result<Self> {
        Ok(Self { random: random::letters(NAME_LENGTH)?, has_names: true, explain: None })
    }

    /// A run whose pages are at 127.0.0.1, for browsers that do not resolve names below `localhost`. The browser sends
    /// its cookies to every server on this machine that it visits.
    ///
    /// # Errors
    /// If the system provides no random bytes.
    pub fn plain() -> Result<Self> {
        Ok(Self { has_names: false, ..Self::named()? })
    }

    /// Makes the run send a question there when a page does not answer.
    #[must_use]
    pub fn explained(self, ask: mpsc::Sender<Question>) -> Self {
        Self { explain: Some(Explain { ask, last: Arc::default() }), ..self }
    }

    /// What happened, as asked at most [`FRESH`] ago.
    pub(super) async fn why_down(&self) -> Down {
        let Some(Explain { ask, last }) = &self.explain else { return Down::default() };
        let mut last = last.lock().await;
        if let Some((_, why)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return why.clone();
        }
        let (question, answer) = oneshot::channel();
        let asked = async { ask.send(question).await.ok() };
        let answered = async { asked.await.map(|()| answer)?.await.ok() };
        let why = timeout(EXPLAIN_TIME, answered).await.ok().flatten().unwrap_or_default();
        *last = Some((Instant::now(), why.clone()));
        why
    }

    /// The host and port under which browsers reach a page of this run.
    pub(super) fn host(&self, page: &str, port: u16) -> String {
        match self.has_names {
            true => format!("{page}.{}.localhost:{port}", self.random),
            false => format!("127.0.0.1:{port}"),
        }
    }

    /// The name of a page's cookie; unique, since at 127.0.0.1 every page receives all cookies.
    pub(super) fn cookie(&self, page: &str) -> String {
        format!("{COOKIE_PREFIX}{}_{page}", self.random)
    }
}

/// The prefix of gpucl's cookie names.
pub(super) const COOKIE_PREFIX: &str = "gpucl_";

/// A page behind the portal.
#[derive(Debug)]
pub struct Page {
    /// Its name for users, and the first label of its host name: `dashboard`.
    pub name: String,
    /// Its own address, such as `127.0.0.1:8265`, sent to it as `Host` whatever the browser used.
    pub address: String,
    /// Where it listens.
    pub upstream: Upstream,
    /// The `Authorization` value that is added to every request.
    pub inject: Option<SecretString>,
    /// The `Authorization` values with which other programs may use it at 127.0.0.1.
    pub credentials: Vec<SecretString>,
    /// Whether other pages of the run embed it or link to it.
    pub is_shown_by_others: bool,
    /// The address of Grafana, which this page embeds.
    pub grafana: Option<SecretString>,
}

/// Where a page listens.
#[derive(Debug)]
pub enum Upstream {
    /// It listens on this machine.
    Here(String),
    /// It listens on a host's loopback.
    There(Way),
}

/// A bidirectional byte stream.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Upstream {
    /// Opens a new connection to the page.
    pub(super) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Here(address) => {
                let stream = timeout(CONNECT_TIME, TcpStream::connect(address)).await??;
                let _ = stream.set_nodelay(true);
                Ok(Box::new(stream))
            }
            Self::There(way) => Ok(Box::new(way.connect().await.map_err(io::Error::other)?)),
        }
    }
}
