//! One listener per page: who may pass, and the passing on.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::answer::{Answer, welcome};
use super::head::{Head, KEY_PARAMETER};
use super::memory::PortalMemory;
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::util::random;

/// How long and how large the head of a request may be.
const HEAD_TIME: Duration = Duration::from_secs(10);
const HEAD_SIZE: usize = 64 * 1024;
/// How long the page behind may take to accept a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How many connections are served at once.
const CONNECTIONS: usize = 256;
/// How many letters a key has: more than 160 bits.
const KEY_LENGTH: usize = 32;

/// A page behind the portal.
#[derive(Debug, Clone)]
pub struct Page {
    /// What a person calls it: `dashboard`.
    pub name: String,
    /// Where it is: `127.0.0.1:8265`.
    pub upstream: String,
    /// The header that logs a request in there: its name and its value.
    pub inject: Option<(String, SecretString)>,
}

/// A page's open listener. Dropping it closes it and all its connections.
#[derive(Debug)]
pub struct Portal {
    name: String,
    memory: PortalMemory,
    displaced: Option<u16>,
    task: JoinHandle<()>,
}

impl Portal {
    /// Opens a page on 127.0.0.1: on this `port` or none; else on the one remembered; else on any.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn open(page: Page, remembered: Option<PortalMemory>, port: Option<u16>) -> Result<Self> {
        let doing = || format!("open the page {}", page.name);
        let wanted = port.or_else(|| remembered.as_ref().map(|memory| memory.port));
        let mut displaced = None;
        let listener = match wanted {
            None => listen(0).await.doing(ErrorKind::Host, doing)?,
            Some(wanted) => match listen(wanted).await {
                Ok(listener) => listener,
                Err(error) if port.is_some() => {
                    return Err(Error::new(ErrorKind::Host, doing())
                        .because(format!("port {wanted} of 127.0.0.1 cannot be had: {error}"))
                        .hint("leave --port out, any free one is taken then"));
                }
                Err(_) => {
                    displaced = Some(wanted);
                    listen(0).await.doing(ErrorKind::Host, doing)?
                }
            },
        };
        let port = listener.local_addr().doing(ErrorKind::Host, doing)?.port();
        let key = match remembered {
            Some(memory) => memory.key,
            None => random::letters(KEY_LENGTH)?.into(),
        };
        let memory = PortalMemory { port, key };
        let name = page.name.clone();
        let task = tokio::spawn(serve(listener, Arc::new(Served { page, memory: memory.clone() })));
        Ok(Self { name, memory, displaced, task })
    }

    /// The page's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What to keep so that the address is the same at the next call.
    pub fn memory(&self) -> &PortalMemory {
        &self.memory
    }

    /// The remembered port, when somebody else has it now.
    pub fn displaced(&self) -> Option<u16> {
        self.displaced
    }

    /// The address with its key.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/?{KEY_PARAMETER}={}", self.memory.port, self.memory.key.expose_secret())
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

async fn listen(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await
}

struct Served {
    page: Page,
    memory: PortalMemory,
}

async fn serve(listener: TcpListener, served: Arc<Served>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    // With the set the connections end as well.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(seat) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((client, _)) => {
                let served = Arc::clone(&served);
                connections.spawn(async move {
                    // A connection that breaks concerns nobody but its browser.
                    let _ = one(client, &served).await;
                    drop(seat);
                });
            }
            // No more file descriptors, say: others will be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Serves one connection: one request, or one WebSocket.
async fn one(mut client: TcpStream, served: &Served) -> std::io::Result<()> {
    let read = match timeout(HEAD_TIME, read_head(&mut client)).await {
        Ok(read) => read?,
        Err(_) => Err(Answer::TooSlow),
    };
    let (head, rest) = match read {
        Ok(Some(read)) => read,
        Ok(None) => return Ok(()),
        Err(answer) => return say(&mut client, &answer.render()).await,
    };
    let (port, key) = (served.memory.port, served.memory.key.expose_secret());
    if let Some(answer) = objection(&head, port, key, &served.page) {
        return say(&mut client, &answer.render()).await;
    }
    if head.key_in_query().is_some() && (head.method == "GET" || head.method == "HEAD") && !head.is_upgrade() {
        return say(&mut client, &welcome(&head, port, key)).await;
    }
    let connecting = timeout(CONNECT_TIME, TcpStream::connect(&served.page.upstream)).await;
    let Ok(Ok(mut upstream)) = connecting else {
        return say(&mut client, &Answer::UpstreamDown.render()).await;
    };
    let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
    let inject = served.page.inject.as_ref().map(|(name, value)| (name.as_str(), value.expose_secret()));
    upstream.write_all(head.onward(inject).as_bytes()).await?;
    upstream.write_all(&rest).await?;
    pass_on(client, upstream).await
}

/// Why a request may not pass.
fn objection(head: &Head, port: u16, key: &str, page: &Page) -> Option<Answer> {
    if !head.is_for(port) {
        return Some(Answer::WrongHost);
    }
    if head.is_from_elsewhere(port) {
        return Some(Answer::Elsewhere);
    }
    let known = head.key_in_query().is_some_and(|shown| same(shown, key))
        || head.keys_in_cookies(port).any(|shown| same(shown, key))
        // Ray's own tools bring the page's credential themselves; no other page could make a browser send it.
        || page.inject.as_ref().is_some_and(|(name, value)| {
            head.one(name).is_some_and(|shown| same(shown, value.expose_secret()))
        });
    (!known).then(|| Answer::NoKey { followed_link: head.is_followed_link() })
}

/// Compares without telling by its time how much of it was right.
fn same(shown: &str, key: &str) -> bool {
    let (shown, key) = (Sha256::digest(shown.as_bytes()), Sha256::digest(key.as_bytes()));
    shown.iter().zip(key.iter()).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

/// Reads a head and what came with it; `None` when the other side closed without a word.
async fn read_head(client: &mut TcpStream) -> std::io::Result<std::result::Result<Option<(Head, Vec<u8>)>, Answer>> {
    let mut bytes = Vec::with_capacity(4096);
    loop {
        let before = bytes.len();
        if client.read_buf(&mut bytes).await? == 0 {
            return Ok(if bytes.is_empty() { Ok(None) } else { Err(Answer::Malformed) });
        }
        // The end may lie across two reads.
        let from = before.saturating_sub(3);
        if let Some(at) = bytes[from..].windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(from + at + 4);
            return Ok(match Head::parse(&bytes) {
                _ if bytes.len() > HEAD_SIZE => Err(Answer::TooLarge),
                Some(head) => Ok(Some((head, rest))),
                None => Err(Answer::Malformed),
            });
        }
        if bytes.len() > HEAD_SIZE {
            return Ok(Err(Answer::TooLarge));
        }
    }
}

async fn say(client: &mut TcpStream, answer: &str) -> std::io::Result<()> {
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await?;
    // What is still on its way is read, else the system resets the connection and the answer with it.
    let mut rest = [0; 4096];
    let drain = async { while matches!(client.read(&mut rest).await, Ok(count) if count > 0) {} };
    let _ = timeout(Duration::from_secs(1), drain).await;
    Ok(())
}

/// Copies both ways until the page has said all.
async fn pass_on(client: TcpStream, upstream: TcpStream) -> std::io::Result<()> {
    let (from_client, mut to_client) = client.into_split();
    let (from_upstream, mut to_upstream) = upstream.into_split();
    let up = async {
        copy(from_client, &mut to_upstream).await?;
        to_upstream.shutdown().await?;
        // The end of the request is not the end of the answer.
        std::future::pending().await
    };
    let down = async {
        copy(from_upstream, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::select! {
        ended = down => ended,
        broke = up => broke,
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, to: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
    tokio::io::copy(&mut from, to).await.map(drop)
}
