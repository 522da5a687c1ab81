//! What is asked and what is answered, before it is HTTP.

use axum::http::HeaderMap;
use serde_json::{Value, json};

/// One request of one service.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) method: String,
    /// The path below the service's prefix, in parts.
    pub(super) path: Vec<String>,
    /// The whole path and query, without the prefix.
    pub(super) uri: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Ask {
    /// Method and path, to be matched.
    pub(super) fn route(&self) -> (&str, Vec<&str>) {
        (&self.method, self.path.iter().map(String::as_str).collect())
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; `None` when it is none.
    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The minor part of the microversion that is asked of Nova; 1 when none is.
    pub(super) fn microversion(&self) -> Result<u32, String> {
        let asked = self
            .header("openstack-api-version")
            .and_then(|text| text.strip_prefix("compute "))
            .or_else(|| self.header("x-openstack-nova-api-version"));
        match asked {
            None => Ok(1),
            Some("latest") => Ok(95),
            Some(text) => text
                .strip_prefix("2.")
                .and_then(|minor| minor.parse().ok())
                .filter(|minor| (1..=95).contains(minor))
                .ok_or_else(|| text.to_owned()),
        }
    }
}

/// What is answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Option<Body>,
}

/// What an answer carries.
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

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Keystone's errors, and those of the check of tokens before each service.
    pub(super) fn keystone(code: u16, title: &str, message: &str) -> Self {
        Self::json(code, json!({"error": {"code": code, "message": message, "title": title}}))
    }

    pub(super) fn unauthorized() -> Self {
        Self::keystone(401, "Unauthorized", "The request you have made requires authentication.")
    }

    /// Blazar's errors.
    pub(super) fn blazar(code: u16, message: impl Into<String>) -> Self {
        Self::json(code, json!({"error_code": code, "error_message": message.into(), "error_name": code}))
    }

    /// Nova's errors: the name of the kind is the key.
    pub(super) fn nova(code: u16, message: impl Into<String>) -> Self {
        let kind = match code {
            400 => "badRequest",
            403 => "forbidden",
            404 => "itemNotFound",
            409 => "conflictingRequest",
            _ => "computeFault",
        };
        Self::json(code, json!({kind: {"code": code, "message": message.into()}}))
    }

    /// Neutron's errors.
    pub(super) fn neutron(code: u16, kind: &str, message: impl Into<String>) -> Self {
        Self::json(code, json!({"NeutronError": {"type": kind, "message": message.into(), "detail": ""}}))
    }
}
