//! HTTP on the loopback: requests in, answers out, and connections that break when they are told to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body as HttpBody, to_bytes};
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::http::header::{CONTENT_TYPE, DATE, HeaderName, HeaderValue};
use axum::http::{Request, Response, StatusCode};
use axum::serve::{IncomingStream, Listener};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use super::answer::{Answer, Ask, Body};
use super::clock::http;
use super::faults::{Fault, LogEntry, Rule};
use super::state::State;

/// The longest request; user data is the longest part of one.
const LONGEST: usize = 4 << 20;

/// What all requests share.
#[derive(Debug, Clone)]
pub(super) struct Shared(Arc<Mutex<State>>);

impl Shared {
    pub(super) fn new(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// The state, with everything done that is due.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A test that failed while it looked changes nothing for the others.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.settle();
        state
    }
}

/// Answers one request.
pub(super) async fn answer(
    axum::extract::State(shared): axum::extract::State<Shared>,
    ConnectInfo(wire): ConnectInfo<Wire>,
    request: Request<HttpBody>,
) -> Response<HttpBody> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, LONGEST).await.map(|bytes| bytes.to_vec()).unwrap_or_default();
    let path = parts.uri.path().to_owned();
    let (service, ask) = read(&parts, body);
    if service == "control" {
        return super::control::answer(&shared, &ask).into_response(None);
    }
    let met = shared.state().faults.take(&ask.method, &path);
    if let Some((_, Fault::Delay(delay))) = &met {
        tokio::time::sleep(*delay).await;
    }
    let (answer, cut) = shared.state().meet(&service, &ask, &path, met);
    if cut {
        wire.cut();
    }
    let now = shared.state().now();
    answer.into_response(Some(http(now)))
}

fn read(parts: &axum::http::request::Parts, body: Vec<u8>) -> (String, Ask) {
    let mut path: Vec<String> = parts.uri.path().split('/').skip(1).map(decoded).collect();
    while path.last().is_some_and(String::is_empty) {
        path.pop();
    }
    let service = if path.is_empty() { String::new() } else { path.remove(0) };
    let query = parts.uri.query().unwrap_or_default();
    let query = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(&key.replace('+', " ")), decoded(&value.replace('+', " ")))
    });
    let whole = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let uri = whole.get(service.len() + 1..).unwrap_or_default().to_owned();
    let ask = Ask {
        method: parts.method.to_string(),
        query: query.collect(),
        path,
        uri,
        headers: parts.headers.clone(),
        body,
    };
    (service, ask)
}

/// Without the `%20` of URLs.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'%').then(|| after.get(..2)).flatten();
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl State {
    /// Answers with the trouble that is due, and says whether the connection is to break.
    fn meet(&mut self, service: &str, ask: &Ask, path: &str, met: Option<(Rule, Fault)>) -> (Answer, bool) {
        let fault = met.as_ref().map(|(_, fault)| *fault);
        if fault == Some(Fault::TokenExpire)
            && let (Some(id), now) = (ask.header("x-auth-token"), self.now())
            && let Some(token) = self.tokens.get_mut(id)
        {
            token.expires = now;
        }
        let answer = match (fault, &met) {
            (Some(Fault::Status(status)), Some((rule, _))) => troubled(service, status, rule),
            (Some(Fault::CutBefore), _) => Answer::empty(502),
            (Some(Fault::After(status)), Some((rule, _))) => {
                self.dispatch(service, ask);
                troubled(service, status, rule)
            }
            (Some(Fault::Malformed), Some((rule, _))) => {
                let real = self.dispatch(service, ask);
                let body = rule.body.clone().unwrap_or_else(|| "{\"lease\": {\"id\": \"1c899e".to_owned());
                Answer { body: Some(Body::Text("application/json", body)), ..real }
            }
            _ => self.dispatch(service, ask),
        };
        let cut = matches!(fault, Some(Fault::CutBefore | Fault::CutAfter));
        let at = self.now();
        self.faults.log.push(LogEntry {
            method: ask.method.clone(),
            path: path.to_owned(),
            query: ask.query.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("&"),
            status: if cut { 0 } else { answer.status },
            fault: met.map(|(rule, _)| rule.fault),
            at,
            headers: told(ask),
            body: ask.json().map(masked),
        });
        (answer, cut)
    }

    fn dispatch(&mut self, service: &str, ask: &Ask) -> Answer {
        let caller = self.authenticated(ask.header("x-auth-token"));
        match service {
            "identity" => self.identity(ask),
            "reservation" => self.reservation(ask, caller.as_ref()),
            "compute" => self.compute(ask, caller.as_ref()),
            "image" => self.image(ask, caller.is_some()),
            "network" => self.network(ask, caller.as_ref()),
            _ => Answer::text(
                404,
                "text/plain",
                "this is a stand-in of OpenStack; its services are /identity /reservation /compute /image /network\n",
            ),
        }
    }
}

/// The answer of a service in trouble, or of what stands before it.
fn troubled(service: &str, status: u16, rule: &Rule) -> Answer {
    let mut answer = match (&rule.body, status, service) {
        (Some(body), _, _) => Answer::text(status, "application/json", body.clone()),
        (None, 500, "reservation") => Answer::json(
            500,
            serde_json::json!({"error_code": 500, "error_message": "Internal Server Error", "error_name": "INTERNAL_SERVER_ERROR"}),
        ),
        (None, 500, "compute") => Answer::nova(
            500,
            "Unexpected API Error. Please report this at http://bugs.launchpad.net/nova/ and attach the Nova API log if possible.\n\
             <class 'oslo_messaging.exceptions.MessagingTimeout'>",
        ),
        (None, 500, "network") => Answer::neutron(
            500,
            "HTTPInternalServerError",
            "Request Failed: internal server error while processing your request.",
        ),
        (None, 500, "identity") => Answer::keystone(
            500,
            "Internal Server Error",
            "An unexpected error prevented the server from fulfilling your request.",
        ),
        (None, _, _) => {
            let reason =
                StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Error");
            Answer::text(status, "text/html", format!("<html><body><h1>{status} {reason}</h1>\n</body></html>\n"))
        }
    };
    for (name, value) in &rule.headers {
        // The few headers that trouble comes with.
        match name.to_lowercase().as_str() {
            "retry-after" => answer.headers.push(("retry-after", value.clone())),
            "location" => answer.headers.push(("location", value.clone())),
            "content-type" => answer.headers.push(("content-type", value.clone())),
            _ => {}
        }
    }
    answer
}

/// The headers that shape what a service does.
fn told(ask: &Ask) -> BTreeMap<String, String> {
    ["accept", "content-type", "openstack-api-version", "x-openstack-nova-api-version", "user-agent"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), ask.header(name)?.to_owned())))
        .collect()
}

fn masked(mut body: Value) -> Value {
    let secrets =
        ["/auth/identity/application_credential/secret", "/auth/identity/token/id", "/auth/identity/password/user"];
    for secret in secrets {
        if let Some(value) = body.pointer_mut(secret) {
            *value = Value::String("***".to_owned());
        }
    }
    body
}

impl Answer {
    pub(super) fn into_response(self, date: Option<String>) -> Response<HttpBody> {
        let (kind, body) = match self.body {
            Some(Body::Json(value)) => (Some("application/json"), HttpBody::from(value.to_string())),
            Some(Body::Text(kind, text)) => (Some(kind), HttpBody::from(text)),
            None => (None, HttpBody::empty()),
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        if let Some(kind) = kind {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        if let Some(date) = date.and_then(|date| HeaderValue::from_str(&date).ok()) {
            headers.insert(DATE, date);
        }
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// Accepts connections that can be broken from inside.
pub(super) struct Breakable(pub(super) TcpListener);

impl Listener for Breakable {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            if let Ok((stream, from)) = self.0.accept().await {
                // Small answers are not held back; without it they are only slower.
                let _ = stream.set_nodelay(true);
                return (Connection { stream, wire: Wire::default() }, from);
            }
            // No more files, most likely: others will close theirs.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// What breaks a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Wire(Arc<AtomicBool>);

impl Wire {
    fn cut(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_cut(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Connected<IncomingStream<'_, Breakable>> for Wire {
    fn connect_info(stream: IncomingStream<'_, Breakable>) -> Self {
        stream.io().wire.clone()
    }
}

/// A connection that sends nothing more once it is cut.
pub(super) struct Connection {
    stream: TcpStream,
    wire: Wire,
}

fn reset<T>() -> Poll<std::io::Result<T>> {
    Poll::Ready(Err(std::io::ErrorKind::ConnectionReset.into()))
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.wire.is_cut() { reset() } else { Pin::new(&mut self.stream).poll_read(context, buffer) }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        if self.wire.is_cut() { reset() } else { Pin::new(&mut self.stream).poll_write(context, bytes) }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
