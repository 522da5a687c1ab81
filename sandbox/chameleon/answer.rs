//! Errors in the words of the services, and requested microversions.

use serde_json::json;

pub(super) use super::super::answer::{Answer, Ask, Body};

impl Ask {
    /// The minor part of the requested Nova microversion; 1 by default, and an error with the text if unsupported.
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

impl Answer {
    /// An error of Keystone, or of the token check in front of each service.
    pub(super) fn keystone(code: u16, title: &str, message: &str) -> Self {
        Self::json(code, json!({"error": {"code": code, "message": message, "title": title}}))
    }

    pub(super) fn unauthorized() -> Self {
        Self::keystone(401, "Unauthorized", "The request you have made requires authentication.")
    }

    /// An error of Blazar.
    pub(super) fn blazar(code: u16, message: impl Into<String>) -> Self {
        Self::json(code, json!({"error_code": code, "error_message": message.into(), "error_name": code}))
    }

    /// An error of Nova: its kind is the key.
    pub(super) fn nova(code: u16, message: impl Into<String>) -> Self {
        let kind = match code {
            400 => "badRequest",
            403 => "forbidden",
            404 => "itemNotFound",
            409 => "conflictingRequest",
            _ => "computeFault",
        };
        let body = json!({kind: {"code": code, "message": message.into()}});
        Self::text(code, "application/json; charset=UTF-8", body.to_string())
    }

    /// An error of Neutron.
    pub(super) fn neutron(code: u16, kind: &str, message: impl Into<String>) -> Self {
        Self::json(code, json!({"NeutronError": {"type": kind, "message": message.into(), "detail": ""}}))
    }
}
