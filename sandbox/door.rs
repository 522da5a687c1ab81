//! Access checks of a stand-in: it serves on the loopback, which every user of the machine and every web page in a
//! browser can reach.
//!
//! A request must name the served address (`Host`), must not come from a web page of another site (`Origin`,
//! `Sec-Fetch-Site`), and must carry the secret when it is for the control. All of this is checked before the body is
//! read or anything is answered. Each service authenticates its own users, as the real one does.

use std::fmt::Write as _;
use std::hint::black_box;
use std::net::SocketAddr;

use axum::http::HeaderMap;
use axum::http::header::{HOST, HeaderName, ORIGIN};
use axum::http::request::Parts;
use sha2::{Digest as _, Sha256};

use super::answer::{Answer, service};
use crate::error::{Doing as _, ErrorKind, Result};

/// Name of the header that carries the control's secret.
pub const CONTROL_HEADER: &str = "x-gpucl-control";

/// First path segment of the control.
pub(super) const CONTROL: &str = "control";

/// Conditions that a request must meet.
pub(super) struct Door {
    /// The served address; `None` without a socket, when requests come from this process only.
    address: Option<SocketAddr>,
    secret: String,
}

impl std::fmt::Debug for Door {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Door of {:?}", self.address)
    }
}

impl Door {
    /// The door of a stand-in that serves at `address`, with a new random secret.
    pub(super) fn of(address: SocketAddr) -> Result<Self> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes)
            .doing(ErrorKind::Internal, || "generate the secret of a stand-in's control".to_owned())?;
        let secret = bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        Ok(Self { address: Some(address), secret })
    }

    /// The door of a stand-in without a socket; its control refuses everything.
    pub(super) fn shut() -> Self {
        Self { address: None, secret: String::new() }
    }

    pub(super) fn port(&self) -> u16 {
        self.address.map_or(0, |address| address.port())
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// The refusal of a request that does not pass the checks.
    pub(super) fn refuses(&self, parts: &Parts) -> Option<Answer> {
        if let Some(address) = self.address {
            if !self.is_for_us(parts, address) {
                return Some(refusal(421, "the Host header does not name this stand-in"));
            }
            if is_from_a_foreign_page(&parts.headers, address) {
                return Some(refusal(403, "requests from web pages are refused"));
            }
        }
        (service(&parts.uri) == CONTROL && !self.has_secret(&parts.headers)).then(|| {
            refusal(
                403,
                "requests to the control need its secret: the file that `gpucl sandbox` names holds the header",
            )
        })
    }

    /// Whether the request names exactly the served address, once. After DNS rebinding a web page still sends its own
    /// name.
    fn is_for_us(&self, parts: &Parts, address: SocketAddr) -> bool {
        let mut named = parts.headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
        let host = named.next();
        // HTTP/2 puts the host here, and so does a client that uses this as a proxy.
        let authority = parts.uri.authority().map(|authority| authority.as_str());
        named.next().is_none()
            && (host.is_some() || authority.is_some())
            && host.into_iter().chain(authority).all(|named| is_address(named, address))
    }

    fn has_secret(&self, headers: &HeaderMap) -> bool {
        let given = only(headers, &HeaderName::from_static(CONTROL_HEADER));
        !self.secret.is_empty() && given.is_some_and(|given| is_same(given, &self.secret))
    }
}

/// Whether a text is the address, such as `127.0.0.1:4000` or `localhost:4000`.
fn is_address(text: &str, address: SocketAddr) -> bool {
    text == address.to_string()
        || (address.ip().is_loopback() && text.eq_ignore_ascii_case(&format!("localhost:{}", address.port())))
}

/// Browsers send the origin of a request; programs do not.
fn is_from_a_foreign_page(headers: &HeaderMap, address: SocketAddr) -> bool {
    let is_ours = |origin: &str| origin.strip_prefix("http://").is_some_and(|rest| is_address(rest, address));
    let origins_are_ours = headers.get_all(ORIGIN).iter().all(|origin| origin.to_str().is_ok_and(is_ours));
    let sites = headers.get_all("sec-fetch-site");
    let sites_are_ours = sites.iter().all(|site| site == "same-origin" || site == "none");
    !(origins_are_ours && sites_are_ours)
}

/// The value of a header that occurs exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

/// Compares secrets in constant time.
pub(super) fn is_same(given: &str, secret: &str) -> bool {
    let (given, secret) = (Sha256::digest(given), Sha256::digest(secret));
    let differs =
        given.iter().zip(secret.iter()).fold(0_u8, |differs, (one, other)| black_box(differs | (one ^ other)));
    differs == 0
}

fn refusal(status: u16, why: &str) -> Answer {
    Answer::text(status, "text/plain", format!("{why}\n"))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn door() -> Door {
        Door::of("127.0.0.1:4000".parse().unwrap()).unwrap()
    }

    /// The status of a refusal; 0 when the request passes.
    fn status(door: &Door, uri: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        door.refuses(&parts).map_or(0, |answer| answer.status)
    }

    #[test]
    fn only_the_exact_host_header_is_accepted() {
        let door = door();
        for right in ["127.0.0.1:4000", "localhost:4000", "LOCALHOST:4000"] {
            assert_eq!(status(&door, "/api/v1/instances", &[("host", right)]), 0, "{right}");
        }
        let wrong = [
            "evil.example",
            "evil.example:4000",
            "127.0.0.1",
            "127.0.0.1:4001",
            "127.0.0.2:4000",
            "[::1]:4000",
            "",
            "127.0.0.1:4000.evil.example",
            "localhost.evil.example:4000",
            "2130706433:4000",
        ];
        for wrong in wrong {
            assert_eq!(status(&door, "/api/v1/instances", &[("host", wrong)]), 421, "{wrong}");
        }
        assert_eq!(status(&door, "/api/v1/instances", &[]), 421, "no host");
        assert_eq!(status(&door, "/", &[("host", "127.0.0.1:4000"), ("host", "evil.example")]), 421, "two hosts");
        assert_eq!(status(&door, "http://evil.example/", &[("host", "127.0.0.1:4000")]), 421, "the address of a proxy");
    }

    #[test]
    fn a_web_page_of_another_site_is_refused_even_with_the_secret() {
        let door = door();
        let secret = door.secret().to_owned();
        let with = |name: &str, value: &str| {
            let headers = [("host", "127.0.0.1:4000"), (CONTROL_HEADER, &secret), (name, value)];
            status(&door, "/control/snapshot", &headers)
        };
        assert_eq!((with("origin", "http://127.0.0.1:4000"), with("sec-fetch-site", "same-origin")), (0, 0));
        for origin in
            ["https://evil.example", "http://127.0.0.1:4001", "http://127.0.0.1", "null", "", "https://127.0.0.1:4000"]
        {
            assert_eq!(with("origin", origin), 403, "{origin}");
        }
        for site in ["cross-site", "same-site", ""] {
            assert_eq!(with("sec-fetch-site", site), 403, "{site}");
        }
    }

    #[test]
    fn the_control_needs_the_secret_of_its_own_stand_in_in_one_header() {
        let (ours, other) = (door(), door());
        assert_ne!(ours.secret(), other.secret());
        assert_eq!(ours.secret().len(), 64);
        let host = ("host", "127.0.0.1:4000");
        let right = ours.secret();
        for path in
            ["/control", "/control/", "/control/snapshot", "/%63ontrol/snapshot", "/control/nonsense", "/control?a=b"]
        {
            assert_eq!(status(&ours, path, &[host, (CONTROL_HEADER, right)]), 0, "{path}");
            assert_eq!(status(&ours, path, &[host]), 403, "{path}");
            for wrong in [other.secret(), "", &right[1..], &format!("{right} "), &format!("{right}, {right}")] {
                assert_eq!(status(&ours, path, &[host, (CONTROL_HEADER, wrong)]), 403, "{path} {wrong}");
            }
            assert_eq!(
                status(&ours, path, &[host, (CONTROL_HEADER, right), (CONTROL_HEADER, right)]),
                403,
                "{path} twice"
            );
        }
        // A stand-in without a socket has no control, and an empty secret opens nothing.
        assert_eq!(status(&Door::shut(), "/control/snapshot", &[(CONTROL_HEADER, "")]), 403);
        assert_eq!(status(&Door::shut(), "/api/v1/instances", &[]), 0);
    }
}
