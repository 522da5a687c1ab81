//! Access control of a page.

use axum::http::header::{AUTHORIZATION, COOKIE, HOST, HeaderName, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use super::page::{Page, PortalRun};

/// The query parameter that carries the key.
pub(super) const KEY_PARAMETER: &str = "gpucl_key";
/// The path prefix that also carries the key, for addresses that are used as a prefix of others.
pub(super) const KEY_PATH: &str = "/.gpucl/";

/// The access rules of one page.
#[derive(Debug)]
pub(super) struct Gate {
    /// The `Host` that browsers use.
    pub(super) host: String,
    /// The `Host` that programs use.
    bare: String,
    /// The name of its cookie.
    pub(super) cookie: String,
    pub(super) key: SecretString,
    credentials: Vec<SecretString>,
    is_shown_by_others: bool,
}

/// The decision on a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Forward it to the page.
    Pass,
    /// It carries the key: set the cookie, and redirect to this location of the page.
    Welcome { location: String, crosses: bool },
    /// Refuse it.
    Refuse(Refusal),
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Malformed,
    WrongHost,
    OtherOrigin,
    NoKey,
    NoCredential,
}

impl Gate {
    pub(super) fn new(run: &PortalRun, page: &Page, port: u16, key: SecretString) -> Self {
        Self {
            host: run.host(&page.name, port),
            bare: format!("127.0.0.1:{port}"),
            cookie: run.cookie(&page.name),
            key,
            credentials: page.credentials.clone(),
            is_shown_by_others: page.is_shown_by_others,
        }
    }

    /// Decides on a request.
    pub(super) fn judge(&self, request: &Parts) -> Verdict {
        // Refuse whatever the portal and the page could parse differently.
        let is_plain = request.uri.authority().is_none() && request.uri.path().starts_with('/');
        let Some(host) = only(&request.headers, HOST).filter(|_| is_plain) else {
            return Verdict::Refuse(Refusal::Malformed);
        };
        let is_program = host == self.bare && self.has_credential(&request.headers);
        match host {
            _ if is_program && !is_by_browser(&request.headers) => Verdict::Pass,
            host if host == self.host => self.judge_browser(request),
            _ if is_program => Verdict::Refuse(Refusal::OtherOrigin),
            host if host == self.bare => Verdict::Refuse(Refusal::NoCredential),
            _ => Verdict::Refuse(Refusal::WrongHost),
        }
    }

    fn judge_browser(&self, request: &Parts) -> Verdict {
        let headers = &request.headers;
        let reads = request.method == Method::GET || request.method == Method::HEAD;
        let location = self.without_key(request).filter(|_| reads && !is_upgrade(headers));
        let navigates = reads && text(headers, "sec-fetch-mode") == Some("navigate");
        let dest = text(headers, "sec-fetch-dest");
        let is_tab = navigates && dest == Some("document");
        let is_frame = navigates && dest == Some("iframe");
        let site = text(headers, "sec-fetch-site");
        let is_ours = match site {
            None | Some("none" | "same-origin") => true,
            // Another page of the run; at 127.0.0.1, any server on this machine.
            Some("same-site") if self.is_shown_by_others && (is_tab || is_frame) => true,
            // The entry: whoever knows the key may link to the page, but not embed it.
            _ => is_tab && location.is_some(),
        };
        let own = format!("http://{}", self.host);
        if !is_ours || headers.get_all(ORIGIN).iter().any(|origin| origin.as_bytes() != own.as_bytes()) {
            return Verdict::Refuse(Refusal::OtherOrigin);
        }
        if let Some(location) = location {
            return Verdict::Welcome { location, crosses: site == Some("cross-site") };
        }
        let is_known = cookies(headers)
            .filter_map(|cookie| cookie.split_once('='))
            .any(|(name, value)| name == self.cookie && same(value, self.key.expose_secret()));
        if is_known { Verdict::Pass } else { Verdict::Refuse(Refusal::NoKey) }
    }

    fn has_credential(&self, headers: &HeaderMap) -> bool {
        only(headers, AUTHORIZATION)
            .is_some_and(|shown| self.credentials.iter().any(|known| same(shown, known.expose_secret())))
    }

    /// The location of a request with the right key. It begins with exactly one slash: with two it would name another
    /// host.
    fn without_key(&self, request: &Parts) -> Option<String> {
        let right = |shown: &str| same(shown, self.key.expose_secret());
        let uri = &request.uri;
        let (path, query) = match uri.path().strip_prefix(KEY_PATH) {
            Some(rest) => {
                let (shown, path) = rest.split_once('/').unwrap_or((rest, ""));
                right(shown).then_some((path, uri.query().map(str::to_owned)))?
            }
            None => {
                let shown =
                    uri.query()?.split('&').find_map(|pair| pair.strip_prefix(KEY_PARAMETER)?.strip_prefix('='));
                shown.is_some_and(right).then(|| (uri.path(), query_without_key(uri.query())))?
            }
        };
        let path = path.trim_start_matches(['/', '\\']);
        Some(query.map_or_else(|| format!("/{path}"), |query| format!("/{path}?{query}")))
    }
}

/// A query without the key.
pub(super) fn query_without_key(query: Option<&str>) -> Option<String> {
    let rest: Vec<&str> = query?.split('&').filter(|pair| pair.split('=').next() != Some(KEY_PARAMETER)).collect();
    (!rest.is_empty()).then(|| rest.join("&"))
}

/// The cookies of a request, as `name=value`.
pub(super) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).map(str::trim).filter(|cookie| !cookie.is_empty())
}

/// Whether it asks for an upgrade to a WebSocket. Other protocols are not forwarded.
pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    let asks = headers
        .get_all("connection")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    asks && text(headers, "upgrade").is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"))
}

/// Whether a page in a browser made it: programs send neither header.
fn is_by_browser(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) || headers.get("sec-fetch-site").is_some_and(|site| site != "none")
}

/// The value of a header that occurs exactly once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(first)
}

/// The value of a header that browsers send once; an invalid value if it occurs several times.
fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Option<&'a str> {
    headers.contains_key(name).then(|| only(headers, HeaderName::from_static(name)).unwrap_or(""))
}

/// Compares in constant time.
fn same(shown: &str, key: &str) -> bool {
    let (shown, key) = (Sha256::digest(shown.as_bytes()), Sha256::digest(key.as_bytes()));
    shown.iter().zip(key.iter()).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
