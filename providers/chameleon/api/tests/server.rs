//! A scripted site for tests: it sends prepared replies, records requests, and can cut connections.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::chameleon::api::Site;
use crate::chameleon::credentials::{Credentials, Method};
use crate::event::{Bus, Inbox};

/// A recorded request.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// A prepared reply.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Json(u16, Value),
    /// Status, further headers, verbatim body.
    Text(u16, &'static str, String),
    /// Closes the connection without a response.
    Cut,
    /// Sends half of a response, then closes the connection.
    Half,
}

struct State {
    replies: Mutex<VecDeque<(String, Reply)>>,
    asked: Mutex<Vec<Asked>>,
    token: Mutex<Value>,
    address: String,
}

/// The site; it stops with its test's runtime.
#[derive(Clone)]
pub(super) struct Fake {
    state: Arc<State>,
}

impl Fake {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let token = token(&address);
        let state = State { replies: Mutex::default(), asked: Mutex::default(), token: Mutex::new(token), address };
        let fake = Self { state: Arc::new(state) };
        let server = fake.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move { server.serve(stream).await });
            }
        });
        fake
    }

    pub(super) fn address(&self) -> &str {
        &self.state.address
    }

    /// Sets the reply to the next request whose line begins with `begin`.
    pub(super) fn reply(&self, begin: &str, reply: Reply) -> &Self {
        self.state.replies.lock().unwrap().push_back((begin.to_owned(), reply));
        self
    }

    /// Changes the metadata of tokens.
    pub(super) fn change_token(&self, change: impl FnOnce(&mut Value)) {
        change(&mut self.state.token.lock().unwrap());
    }

    /// The recorded requests, except those for tokens.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.all().into_iter().filter(|asked| !asked.path.contains("/auth/")).collect()
    }

    pub(super) fn all(&self) -> Vec<Asked> {
        self.state.asked.lock().unwrap().clone()
    }

    pub(super) fn tokens(&self) -> usize {
        self.all().iter().filter(|asked| asked.path.ends_with("/auth/tokens")).count()
    }

    pub(super) fn credentials(&self) -> Credentials {
        let secret = SecretString::from("SECRET".to_owned());
        let method = Method::ApplicationCredential { id: "APPCREDID".to_owned(), secret };
        Credentials {
            region: Some("CHI@TACC".to_owned()),
            ..Credentials::new(method, format!("{}/v3", self.address()))
        }
    }

    pub(super) fn site(&self) -> Site {
        self.site_with(self.credentials()).0
    }

    pub(super) fn site_with(&self, credentials: Credentials) -> (Site, Inbox) {
        let (bus, inbox) = Bus::new();
        (Site::new(credentials, bus).unwrap(), inbox)
    }

    async fn serve(&self, mut stream: TcpStream) {
        let Some(asked) = read(&mut stream).await else { return };
        let line = format!("{} {}", asked.method, asked.path);
        self.state.asked.lock().unwrap().push(asked);
        let planned = {
            let mut replies = self.state.replies.lock().unwrap();
            let at = replies.iter().position(|(begin, _)| line.starts_with(begin.as_str()));
            at.and_then(|at| replies.remove(at)).map(|(_, reply)| reply)
        };
        let reply = planned.unwrap_or_else(|| {
            let token = self.state.token.lock().unwrap().clone();
            if line.contains("/auth/tokens") { Reply::Json(201, token) } else { Reply::Json(404, json!({})) }
        });
        let (status, headers, body) = match reply {
            Reply::Cut => return,
            Reply::Half => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"leases\"").await;
                return;
            }
            Reply::Json(status, body) => (status, "Content-Type: application/json\r\n", body.to_string()),
            Reply::Text(status, headers, body) => (status, headers, body),
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\nX-Subject-Token: SCOPED-TOKEN\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    }
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let headers: Vec<(String, String)> =
        lines.filter_map(|line| line.split_once(": ")).map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let length = headers.iter().find(|(key, _)| key.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, value)| value.parse::<usize>().ok()).unwrap_or_default();
    while bytes.len() < end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8_lossy(&bytes[end + 4..]).into_owned();
    Some(Asked { method, path, headers, body })
}

/// The metadata of a token, with all services at this address.
fn token(address: &str) -> Value {
    let service = |kind: &str, path: &str| {
        let endpoint = |interface: &str, host: &str| json!({"interface": interface, "region": "CHI@TACC", "region_id": "CHI@TACC", "url": format!("{host}{path}")});
        json!({"type": kind, "name": kind, "endpoints": [
            endpoint("public", address), endpoint("admin", "http://127.0.0.1:1"),
        ]})
    };
    let now = jiff::Timestamp::now();
    json!({"token": {
        "methods": ["application_credential"],
        "user": {"id": "1111aaaa", "name": "jdoe@example.edu"},
        "project": {"id": "2222bbbb", "name": "CHI-000000"},
        "roles": [{"id": "1", "name": "member"}, {"id": "2", "name": "reader"}],
        "issued_at": now.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string(),
        "expires_at": (now + jiff::SignedDuration::from_hours(4)).to_string(),
        "application_credential": {"id": "APPCREDID", "name": "gpucl", "restricted": false},
        "catalog": [
            service("identity", "/v3"), service("reservation", "/reservation/v1"),
            service("compute", "/compute/v2.1"), service("network", "/network"), service("image", "/image"),
        ],
    }})
}
