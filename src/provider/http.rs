//! What providers share that call a service over HTTP: a client, an answer, a call that did not succeed, and what it may have done.
//!
//! What a refusal means, and how often a service may be asked, each provider knows for itself.

use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderMap, RETRY_AFTER};
use reqwest::{ClientBuilder, Method, RequestBuilder, StatusCode, Url};

use crate::error::{Error, ErrorKind, LeftBehind, Status};
use crate::event::Bus;
use crate::util::http::{Unread, body};

/// How long one request may take: making a lease or launching an instance takes many seconds where there is much to do.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// How long a connection may take to be made.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The longest answer that is read: the calendar of a large site is a few megabytes.
const BODY_LIMIT: usize = 32 * 1024 * 1024;
/// A longer wait is told.
const SILENT_WAIT: Duration = Duration::from_secs(2);

/// The beginning of a client of this service: it goes where it is sent and nowhere else, and tries nothing again by itself.
pub fn client(endpoint: &Url) -> ClientBuilder {
    let builder = crate::util::http::client()
        .user_agent(concat!("gpucl/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_LIMIT)
        .timeout(REQUEST_LIMIT);
    // A proxy for the world is no way to this machine.
    if is_loopback(endpoint) { builder.no_proxy() } else { builder }
}

/// It is on this machine.
pub fn is_loopback(endpoint: &Url) -> bool {
    endpoint.host_str().is_some_and(|host| {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    })
}

/// What is sent there can be read by nobody in between: it is encrypted, or does not leave this machine.
pub fn is_private(endpoint: &Url) -> bool {
    endpoint.host_str().is_some()
        && (endpoint.scheme() == "https" || (endpoint.scheme() == "http" && is_loopback(endpoint)))
}

/// A part of a path, of whatever somebody gave as an id or a name.
pub fn part(text: &str) -> String {
    let mut shown = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric()
            || b"-_~".contains(&byte)
            || (byte == b'.' && !text.trim_matches('.').is_empty())
        {
            shown.push(char::from(byte));
        } else {
            shown.push_str(&format!("%{byte:02X}"));
        }
    }
    shown
}

/// An answer, whatever its status.
pub struct Answer {
    /// Its status code.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// All of its body; empty when that broke off and the status says enough.
    pub body: Vec<u8>,
}

impl Answer {
    /// How long the service wants to be left alone: seconds, or a date.
    pub fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        if let Ok(seconds) = text.parse::<f64>() {
            return Duration::try_from_secs_f64(seconds).ok();
        }
        let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        Some(Duration::try_from(at.duration_since(jiff::Timestamp::now())).unwrap_or_default())
    }
}

/// Sends a request once, and reads the whole answer; `place` is what the service is called where no address is known.
///
/// # Errors
/// When there is no answer.
pub async fn ask<K: From<Unanswered>>(
    request: RequestBuilder,
    method: &Method,
    doing: &str,
    place: &str,
) -> Result<Answer, Failure<K>> {
    let lost = |error: reqwest::Error| Failure::unanswered(doing, method, &error, place);
    // Some services answer 500 without it, and carry the call out all the same.
    let mut answer = request.header(ACCEPT, "application/json").send().await.map_err(lost)?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let body = match body(&mut answer, BODY_LIMIT).await {
        Ok(body) => body,
        // What broke off was an answer all the same, and its status says what matters.
        Err(_) if !status.is_success() => Vec::new(),
        Err(Unread::Broken(error)) => return Err(lost(error)),
        Err(Unread::TooLong(limit)) => {
            let host = answer.url().host_str().unwrap_or(place);
            let text = format!("{host} answered with more than {} MiB, and no more was read", limit >> 20);
            return Err(Failure::new(Unanswered::Cut.into(), doing, text).effect(Effect::of(method)));
        }
    };
    Ok(Answer { status, headers, body })
}

/// Whether a call that changes something may have been carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It was not.
    None,
    /// It cannot be told; only looking tells.
    Unknown,
}

impl Effect {
    /// That of a call by this method whose answer is lost, or cannot be read.
    pub fn of(method: &Method) -> Self {
        if changes(method) { Self::Unknown } else { Self::None }
    }
}

impl From<Effect> for LeftBehind {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::None => Self::Clear,
            Effect::Unknown => Self::Unknown,
        }
    }
}

/// Whether a call by this method may change something.
pub fn changes(method: &Method) -> bool {
    method != Method::GET
}

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// Nothing answers there; nothing was sent.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// The connection broke before the answer was whole.
    Cut,
    /// It is no request that could be sent.
    NotSent,
}

/// A call that did not succeed; what that means is of a kind of the provider's own.
#[derive(Debug, Clone)]
pub struct Failure<K> {
    /// What it means.
    pub kind: K,
    /// What we were doing, and where: `list the leases at CHI@UC`.
    pub doing: String,
    /// The service's own words, or ours.
    pub text: String,
    /// The status code, when there was an answer.
    pub status: Option<u16>,
    /// Whether the call may have been carried out.
    pub effect: Effect,
    /// What to do about it, where that is nearer than what is usual for its kind.
    pub hints: Vec<String>,
    /// When the service wants to be asked again.
    pub after: Option<Duration>,
}

impl<K> Failure<K> {
    /// A failure without effect.
    pub fn new(kind: K, doing: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            kind,
            doing: doing.into(),
            text: text.into(),
            status: None,
            effect: Effect::None,
            hints: Vec::new(),
            after: None,
        }
    }

    /// What a request without an answer means.
    fn unanswered(doing: &str, method: &Method, error: &reqwest::Error, place: &str) -> Self
    where
        K: From<Unanswered>,
    {
        // The innermost cause says it best: `Connection refused (os error 111)`. No error here holds an address with a secret.
        let mut cause: &dyn std::error::Error = error;
        while let Some(next) = cause.source() {
            cause = next;
        }
        let place = error.url().and_then(Url::host_str).unwrap_or(place);
        let (why, text) = match error {
            error if error.is_connect() => (Unanswered::Unreachable, format!("{place} cannot be reached: {cause}")),
            error if error.is_timeout() => (Unanswered::Timeout, format!("{place} did not answer in time")),
            error if error.is_builder() => (Unanswered::NotSent, format!("the request cannot be made: {cause}")),
            _ => (Unanswered::Cut, format!("the connection to {place} broke: {cause}")),
        };
        let was_sent = matches!(why, Unanswered::Timeout | Unanswered::Cut);
        Self::new(why.into(), doing, text).effect(if was_sent { Effect::of(method) } else { Effect::None })
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Says whether the call may have been carried out.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// The other end's certificate is not trusted: trying again does not change it.
    pub fn is_of_certificate(&self) -> bool {
        self.text.contains("certificate") || self.text.contains("UnknownIssuer")
    }

    /// Waits for so long before the call is made again.
    pub async fn wait(&self, time: Duration, events: &Bus) {
        if time > SILENT_WAIT {
            let seconds = time.as_secs_f64().ceil();
            events.note(format!("failed to {}: {}; again in {seconds} s", self.doing, self.text));
        }
        tokio::time::sleep(time).await;
    }

    /// The error that a person sees; `usual` is what to do about its kind, where nothing nearer is known.
    pub fn into_error(self, kind: ErrorKind, status: Status, usual: Option<&str>) -> Error {
        let error = Error::new(kind, self.doing).because(self.text).status(status).left(self.effect.into());
        match usual {
            Some(hint) if self.hints.is_empty() => error.hint(hint),
            _ => self.hints.iter().fold(error, |error, hint| error.hint(hint)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_stays_within_its_part_of_the_path() {
        assert_eq!(part("0920582c7ff0"), "0920582c7ff0");
        assert_eq!(part("CC-Ubuntu24.04"), "CC-Ubuntu24.04");
        assert_eq!(part("../instances?x=1"), "..%2Finstances%3Fx%3D1");
        assert_eq!(part(".."), "%2E%2E");
    }

    #[test]
    fn only_this_machine_is_on_the_loopback() {
        let at = |text: &str| is_loopback(&Url::parse(text).unwrap());
        assert!(at("http://localhost:5000") && at("http://127.0.0.1:4040") && at("http://[::1]:4040/v3"));
        assert!(!at("http://127.0.0.1.example") && !at("https://localhost.example") && !at("https://10.0.0.1"));
    }

    #[test]
    fn secrets_go_encrypted_or_stay_on_this_machine() {
        let is = |text: &str| is_private(&Url::parse(text).unwrap());
        assert!(is("https://chi.example:5000/v3") && is("http://127.0.0.1:5000") && is("http://[::1]/v3"));
        assert!(!is("http://chi.example") && !is("http://10.0.0.1") && !is("ftp://127.0.0.1") && !is("file:///etc"));
    }

    #[test]
    fn a_service_says_in_seconds_or_by_a_date_when_to_come_back() {
        let retry_after = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            Answer { status: StatusCode::TOO_MANY_REQUESTS, headers, body: Vec::new() }.retry_after()
        };
        assert_eq!(retry_after("12"), Some(Duration::from_secs(12)));
        assert_eq!(retry_after("1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!((retry_after("-1"), retry_after("soon")), (None, None));
    }

    #[tokio::test]
    async fn of_an_answer_without_an_end_no_more_is_read_than_an_answer_may_have() {
        use crate::util::http::endless;
        let (address, sent) = endless::server("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n").await;
        let url = Url::parse(&address).unwrap();
        let http = client(&url).tls_certs_only([]).build().unwrap();
        #[derive(Debug)]
        struct Kind;
        impl From<Unanswered> for Kind {
            fn from(_: Unanswered) -> Self {
                Self
            }
        }
        let asked = ask::<Kind>(http.get(url), &Method::GET, "list the leases", "there").await;
        let Err(failure) = asked else { panic!("it ended") };
        assert_eq!(failure.text, "127.0.0.1 answered with more than 32 MiB, and no more was read");
        let sent = sent.load(std::sync::atomic::Ordering::Relaxed);
        assert!(sent < 2 * BODY_LIMIT as u64, "{sent} bytes were taken");
    }

    #[test]
    fn only_a_call_that_changes_something_leaves_doubt() {
        assert_eq!(LeftBehind::from(Effect::of(&Method::GET)), LeftBehind::Clear);
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert_eq!(LeftBehind::from(Effect::of(&method)), LeftBehind::Unknown);
        }
    }
}
