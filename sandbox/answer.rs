//! Requests and answers of the stand-ins, independent of HTTP.

use axum::body::{Body as HttpBody, to_bytes};
use axum::http::header::{CONTENT_TYPE, DATE, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use serde_json::Value;

/// The longest accepted request body, in bytes; user data is the longest part of one.
const LONGEST: usize = 4 << 20;

/// One request to one service.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) method: String,
    /// Path segments below the service's prefix.
    pub(super) path: Vec<String>,
    /// Full path and query, without the prefix.
    pub(super) uri: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Ask {
    /// Method and path, in a form that `match` takes.
    pub(super) fn route(&self) -> (&str, Vec<&str>) {
        (&self.method, self.path.iter().map(String::as_str).collect())
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; `None` when it is not JSON.
    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Option<Body>,
}

/// The body of an answer; the text has its content type.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Body {
    Json(Value),
    Text(&'static str, String),
}

impl Answer {
    pub(super) fn json(status: u16, body: Value) -> Self {
        Self { status, headers: Vec::new(), body: Some(Body::Json(body)) }
    }

    pub(super) fn text(status: u16, kind: &'static str, body: impl Into<String>) -> Self {
        Self { status, headers: Vec::new(), body: Some(Body::Text(kind, body.into())) }
    }

    pub(super) fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: None }
    }

    /// An HTML page, as a proxy in front of a service returns it.
    pub(super) fn page(status: u16, body: Option<&str>) -> Self {
        let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Error");
        let plain = format!("<html><body><h1>{status} {reason}</h1>\n</body></html>\n");
        Self::text(status, "text/html", body.map_or(plain, str::to_owned))
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
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

/// Name of the requested service: the first path segment.
pub(super) fn service(uri: &Uri) -> String {
    uri.path().split('/').nth(1).map(decoded).unwrap_or_default()
}

/// Reads a request: the name of the service, and what is asked of it.
pub(super) async fn read(parts: &Parts, body: HttpBody) -> (String, Ask) {
    let body = to_bytes(body, LONGEST).await.map(|bytes| bytes.to_vec()).unwrap_or_default();
    let service = service(&parts.uri);
    let mut path: Vec<String> = parts.uri.path().split('/').skip(2).map(decoded).collect();
    while path.last().is_some_and(String::is_empty) {
        path.pop();
    }
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

/// Decodes percent-encoding, such as `%20`.
pub(super) fn decoded(text: &str) -> String {
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
