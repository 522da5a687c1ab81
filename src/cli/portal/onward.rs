//! Rewrites requests to a page and its answers: with the page's address and credential, without the portal's cookies.

use axum::body::{Body, to_bytes};
use axum::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, COOKIE, HOST, HeaderName,
    HeaderValue, LOCATION, ORIGIN, REFERER, REFERRER_POLICY, SET_COOKIE, UPGRADE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Response, Uri, Version, uri::PathAndQuery};
use hyper::body::Incoming;
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::gate::{Gate, cookies, is_upgrade, query_without_key};
use super::page::{COOKIE_PREFIX, Page, PortalRun};

/// Hop-by-hop headers.
const HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];
/// The path at which Ray's page asks for Grafana's address.
const GRAFANA_HEALTH: &str = "/api/grafana_health";
/// The longest answer to that, in bytes.
const GRAFANA_HEALTH_SIZE: usize = 64 * 1024;

/// Whether this request asks for Grafana's address.
pub(super) fn asks_for_grafana(page: &Page, request: &Parts) -> bool {
    page.grafana.is_some() && request.uri.path() == GRAFANA_HEALTH
}

/// Turns an accepted request into one to the page; `None` if that is impossible.
pub(super) fn request(page: &Page, gate: &Gate, request: &mut Parts) -> Option<()> {
    let upgrades = is_upgrade(&request.headers);
    let path = request.uri.path();
    let target = match query_without_key(request.uri.query()) {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")).ok()?,
        None => PathAndQuery::try_from(path).ok()?,
    };
    let asks = asks_for_grafana(page, request);
    request.uri = Uri::from(target);
    request.version = Version::HTTP_11;
    let headers = &mut request.headers;
    without_hop(headers);
    if upgrades {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    if asks {
        headers.remove(ACCEPT_ENCODING);
    }
    // The page compares the target and the origin of a request, and knows itself only by this address.
    headers.insert(HOST, HeaderValue::from_str(&page.address).ok()?);
    let own = format!("http://{}", page.address);
    if headers.contains_key(ORIGIN) {
        headers.insert(ORIGIN, HeaderValue::from_str(&own).ok()?);
    }
    if let Some(from) = headers.remove(REFERER)
        && let Some(place) = from.to_str().ok().and_then(|from| from.strip_prefix(&format!("http://{}/", gate.host)))
    {
        headers.insert(REFERER, HeaderValue::from_str(&format!("{own}/{place}")).ok()?);
    }
    // At 127.0.0.1 the keys of other runs arrive too; the page must see none of them.
    let rest: Vec<&str> = cookies(headers).filter(|cookie| !cookie.starts_with(COOKIE_PREFIX)).collect();
    let rest = (!rest.is_empty()).then(|| HeaderValue::from_str(&rest.join("; ")));
    headers.remove(COOKIE);
    if let Some(rest) = rest {
        headers.insert(COOKIE, rest.ok()?);
    }
    if let Some(credential) = &page.inject {
        let mut credential = HeaderValue::from_str(credential.expose_secret()).ok()?;
        credential.set_sensitive(true);
        headers.insert(AUTHORIZATION, credential);
    }
    Some(())
}

/// Turns the page's answer into one to the browser; the headers of an upgrade are kept.
pub(super) fn answer(run: &PortalRun, page: &Page, answer: Response<Incoming>, upgrades: bool) -> Response<Body> {
    let mut answer = answer.map(Body::new);
    *answer.version_mut() = Version::HTTP_11;
    let headers = answer.headers_mut();
    without_hop(headers);
    if upgrades {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    }
    let theirs = |cookie: &HeaderValue| !cookie.as_bytes().trim_ascii_start().starts_with(COOKIE_PREFIX.as_bytes());
    let set: Vec<HeaderValue> = headers.get_all(SET_COOKIE).iter().filter(|cookie| theirs(cookie)).cloned().collect();
    headers.remove(SET_COOKIE);
    for cookie in set {
        headers.append(SET_COOKIE, cookie);
    }
    headers.remove("clear-site-data");
    let own = format!("http://{}", page.address);
    if let Some(place) = headers.get(LOCATION).and_then(|to| to.to_str().ok()?.strip_prefix(&own))
        && (place.is_empty() || place.starts_with('/'))
        && let Ok(place) = HeaderValue::from_str(&format!("/{}", place.trim_start_matches('/')))
    {
        headers.insert(LOCATION, place);
    }
    // Other sites must not see the name of the run.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    if let Ok(policy) = HeaderValue::from_str(&frame_ancestors(run, page)) {
        headers.append(CONTENT_SECURITY_POLICY, policy);
    }
    answer
}

/// The policy for pages that may embed this one.
fn frame_ancestors(run: &PortalRun, page: &Page) -> String {
    match page.is_shown_by_others {
        false => "frame-ancestors 'self'".to_owned(),
        true if run.has_names => format!("frame-ancestors 'self' http://*.{}.localhost:*", run.random),
        true => "frame-ancestors 'self' http://127.0.0.1:*".to_owned(),
    }
}

/// Replaces the address of Grafana that Ray was started with by this run's.
pub(super) async fn with_grafana(page: &Page, answer: Response<Body>) -> Result<Response<Body>, axum::Error> {
    let Some(grafana) = &page.grafana else { return Ok(answer) };
    let (mut parts, body) = answer.into_parts();
    let mut bytes = to_bytes(body, GRAFANA_HEALTH_SIZE).await?;
    if let Ok(mut health) = serde_json::from_slice::<Value>(&bytes)
        && let Some(place) = health.pointer_mut("/data/grafanaHost")
        && place.as_str().is_some_and(|place| place.starts_with("http"))
    {
        *place = Value::from(grafana.expose_secret());
        bytes = health.to_string().into();
    }
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

/// Removes hop-by-hop headers, and those that `Connection` names.
fn without_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP {
        headers.remove(*name);
    }
}
