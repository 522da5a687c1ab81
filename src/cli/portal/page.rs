//! What is behind the portal, and what its addresses are made of.

use std::io;
use std::time::Duration;

use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::error::Result;
use crate::host::Way;
use crate::util::random;

/// How long a page on this machine may take to accept a connection. One elsewhere has the limit of its way.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How many letters a run's name has: more than 120 bits.
const NAME_LENGTH: usize = 24;

/// What the pages of one run share.
#[derive(Debug, Clone)]
pub struct Run {
    /// Makes names of pages and cookies this run's own.
    pub(super) random: String,
    /// Pages have names; else they are at 127.0.0.1.
    pub(super) has_names: bool,
}

impl Run {
    /// A run whose pages have names.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn named() -> Result<Self> {
        Ok(Self { random: random::letters(NAME_LENGTH)?, has_names: true })
    }

    /// A run whose pages are at 127.0.0.1, for a browser that finds no names below `localhost`. Every server of this machine
    /// that the browser visits is sent its cookies.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn plain() -> Result<Self> {
        Ok(Self { has_names: false, ..Self::named()? })
    }

    /// Where browsers find a page of this run.
    pub(super) fn host(&self, page: &str, port: u16) -> String {
        match self.has_names {
            true => format!("{page}.{}.localhost:{port}", self.random),
            false => format!("127.0.0.1:{port}"),
        }
    }

    /// The name of a page's cookie. At 127.0.0.1 all pages get all cookies.
    pub(super) fn cookie(&self, page: &str) -> String {
        format!("{COOKIE_PREFIX}{}_{page}", self.random)
    }
}

/// The start of our cookies' names.
pub(super) const COOKIE_PREFIX: &str = "gpucl_";

/// A page behind the portal.
#[derive(Debug)]
pub struct Page {
    /// What a person calls it, and the first part of its name: `dashboard`.
    pub name: String,
    /// Its address as it knows it itself: `127.0.0.1:8265`. It is told this one, whichever the browser used.
    pub address: String,
    /// How it is reached.
    pub upstream: Upstream,
    /// The `Authorization` that logs every request in there.
    pub inject: Option<SecretString>,
    /// The values of `Authorization` that open it at 127.0.0.1 for other programs.
    pub credentials: Vec<SecretString>,
    /// Other pages of the run show it within themselves and link to it.
    pub is_shown_by_others: bool,
    /// Where this page finds Grafana, which it shows within itself.
    pub grafana: Option<SecretString>,
}

/// How a page is reached.
#[derive(Debug)]
pub enum Upstream {
    /// It listens on this machine.
    Here(String),
    /// It listens on a host's loopback.
    There(Way),
}

/// A stream of bytes both ways.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Upstream {
    /// A new connection to the page.
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
