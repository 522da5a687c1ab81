//! A minimal HTTP client for the tests of stand-ins.

use serde_json::{Value, json};

/// The reply to one request; a body that is not JSON is kept as a JSON string.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Value,
    pub(super) headers: reqwest::header::HeaderMap,
}

pub(super) fn http() -> reqwest::Client {
    crate::util::http::loopback_client().build().unwrap()
}

/// Sends one request without retries; a null body means no body.
pub(super) async fn sent(
    http: &reqwest::Client,
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> reqwest::Result<Reply> {
    let mut request = http.request(method.parse().unwrap(), url).header("accept", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if !body.is_null() {
        request = request.json(&body);
    }
    let response = request.send().await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await?;
    let body = serde_json::from_str(&text).unwrap_or(if text.is_empty() { Value::Null } else { json!(text) });
    Ok(Reply { status, body, headers })
}
