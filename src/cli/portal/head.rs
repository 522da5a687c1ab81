//! The head of a request: read strictly, rewritten for the page behind the portal.

use std::fmt::Write as _;

/// The query parameter that carries the key.
pub(super) const KEY_PARAMETER: &str = "gpucl_key";
/// The start of our cookies' names; the port follows, since a browser keeps cookies by host and not by port.
const COOKIE_PREFIX: &str = "gpucl_key_";
/// What concerns one connection only, or what we say ourselves.
const OURS: &[&str] = &["connection", "keep-alive", "proxy-connection", "proxy-authorization", "cookie"];

/// The head of a request.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) target: String,
    headers: Vec<(String, String)>,
}

impl Head {
    /// Reads a head that ends with an empty line. What two readers could read in two ways is refused.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.strip_suffix("\r\n\r\n")?.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        let good_target = target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic());
        let good_version = version == "HTTP/1.1" || version == "HTTP/1.0";
        if words.next().is_some() || !is_token(method) || !good_target || !good_version {
            return None;
        }
        let mut headers = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':')?;
            if !is_token(name) || value.contains(['\r', '\n', '\0']) {
                return None;
            }
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let head = Self { method: method.to_owned(), target: target.to_owned(), headers };
        let doubtful = |name| head.all(name).count() > 1;
        let two_lengths = head.one("content-length").is_some() && head.one("transfer-encoding").is_some();
        (!doubtful("host") && !doubtful("content-length") && !two_lengths).then_some(head)
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(super) fn one(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// It asks to go on as a WebSocket.
    pub(super) fn is_upgrade(&self) -> bool {
        self.one("upgrade").is_some()
            && self
                .all("connection")
                .flat_map(|value| value.split(','))
                .any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
    }

    /// It is meant for the listener of this port, and not for a name that somebody made to lead here.
    pub(super) fn is_for(&self, port: u16) -> bool {
        self.one("host").is_some_and(|host| host == format!("127.0.0.1:{port}") || host == format!("localhost:{port}"))
    }

    /// Another page made the browser send it.
    ///
    /// Cookies go to all ports of a host, so a page of another port could else use ours.
    pub(super) fn is_from_elsewhere(&self, port: u16) -> bool {
        let own =
            |origin: &str| origin == format!("http://127.0.0.1:{port}") || origin == format!("http://localhost:{port}");
        let navigates =
            self.one("sec-fetch-mode") == Some("navigate") && (self.method == "GET" || self.method == "HEAD");
        let crosses = matches!(self.one("sec-fetch-site"), Some("cross-site" | "same-site"));
        !navigates && (crosses || self.all("origin").any(|origin| !own(origin)))
    }

    /// A link on another site led here: the browser then keeps a strict cookie back, though it has one.
    pub(super) fn is_followed_link(&self) -> bool {
        self.one("sec-fetch-mode") == Some("navigate")
            && matches!(self.one("sec-fetch-site"), Some("cross-site" | "same-site"))
    }

    /// The key in the query.
    pub(super) fn key_in_query(&self) -> Option<&str> {
        let query = self.target.split_once('?')?.1;
        query.split('&').find_map(|pair| pair.strip_prefix(KEY_PARAMETER)?.strip_prefix('='))
    }

    /// The target without the key. It begins with one slash: with two it would lead to another host.
    pub(super) fn target_without_key(&self) -> String {
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let mut target = format!("/{}", path.trim_start_matches(['/', '\\']));
        let rest: Vec<&str> =
            query.split('&').filter(|pair| !pair.is_empty() && pair.split('=').next() != Some(KEY_PARAMETER)).collect();
        if !rest.is_empty() {
            target.push('?');
            target.push_str(&rest.join("&"));
        }
        target
    }

    /// The values of our cookie.
    pub(super) fn keys_in_cookies(&self, port: u16) -> impl Iterator<Item = &str> {
        let name = cookie_name(port);
        self.cookies()
            .filter_map(move |cookie| cookie.split_once('=').filter(|(known, _)| *known == name).map(|(_, key)| key))
    }

    fn cookies(&self) -> impl Iterator<Item = &str> {
        self.all("cookie").flat_map(|value| value.split(';')).map(str::trim).filter(|cookie| !cookie.is_empty())
    }

    /// The head that goes on: with the page's credential, without anything of ours, one request per connection.
    pub(super) fn onward(&self, inject: Option<(&str, &str)>) -> String {
        let target = if self.key_in_query().is_some() { self.target_without_key() } else { self.target.clone() };
        let mut text = format!("{} {target} HTTP/1.1\r\n", self.method);
        for (name, value) in &self.headers {
            let injected = inject.is_some_and(|(injected, _)| injected.eq_ignore_ascii_case(name));
            if !injected && !OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name)) {
                let _ = write!(text, "{name}: {value}\r\n");
            }
        }
        // The keys of other ports' portals come along as well; none of them is the page's business.
        let cookies: Vec<&str> = self.cookies().filter(|cookie| !cookie.starts_with(COOKIE_PREFIX)).collect();
        if !cookies.is_empty() {
            let _ = write!(text, "Cookie: {}\r\n", cookies.join("; "));
        }
        if let Some((name, value)) = inject {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text.push_str(if self.is_upgrade() { "Connection: Upgrade\r\n\r\n" } else { "Connection: close\r\n\r\n" });
        text
    }
}

/// The name of our cookie.
pub(super) fn cookie_name(port: u16) -> String {
    format!("{COOKIE_PREFIX}{port}")
}

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
