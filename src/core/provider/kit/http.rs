//! Calls to a service over HTTP: the client, answers, and failed calls with their effect.
//!
//! The meaning of a refusal and the rate limits are up to each provider.

use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{ClientBuilder, Method, RequestBuilder, StatusCode, Url};

use crate::error::{Error, ErrorKind, LeftBehind, Status};
use crate::util::http::{Unread, body, innermost, is_of_proxy};
pub use crate::util::http::{built, is_loopback};

/// The timeout of one request: creating a lease or launching an instance takes many seconds on a busy service.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// The timeout for connecting.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes: the calendar of a large site is a few megabytes.
const BODY_LIMIT: usize = 32 * 1024 * 1024;
/// What is encoded in a segment of a path: all but the unreserved characters of RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A client builder for this service; the client follows no redirects and does not retry.
pub fn client(endpoint: &Url) -> ClientBuilder {
    crate::util::http::client_for(endpoint)
        .user_agent(concat!("gpucl/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_LIMIT)
        .timeout(REQUEST_LIMIT)
}

/// Whether nobody in between can read what is sent there: it is encrypted, or does not leave this machine.
pub fn is_private(endpoint: &Url) -> bool {
    endpoint.host_str().is_some()
        && (endpoint.scheme() == "https" || (endpoint.scheme() == "http" && is_loopback(endpoint)))
}

/// Percent-encodes an id or name given by a user as one segment of a path.
pub fn part(text: &str) -> String {
    // A segment of only dots would lead to another folder.
    if text.trim_matches('.').is_empty() {
        return text.replace('.', "%2E");
    }
    utf8_percent_encode(text, RESERVED).to_string()
}

/// An HTTP response with any status.
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body; empty if it was cut off and the status is an error.
    pub body: Vec<u8>,
}

impl Answer {
    /// The wait that the service asks for in `Retry-After`, given in seconds or as a date.
    pub fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        if let Ok(seconds) = text.parse::<f64>() {
            return Duration::try_from_secs_f64(seconds).ok();
        }
        let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        Some(Duration::try_from(at.duration_since(jiff::Timestamp::now())).unwrap_or_default())
    }
}

/// Sends a request once and reads the whole answer; `place` names the service in errors without an address.
///
/// # Errors
/// If there is no complete answer.
pub async fn ask<K: From<Unanswered>>(
    request: RequestBuilder,
    method: &Method,
    doing: &str,
    place: &str,
) -> Result<Answer, Failure<K>> {
    let lost = |error: reqwest::Error| Failure::unanswered(doing, method, &error, place);
    // Some services answer 500 without it, although they carry out the call.
    let mut answer = request.header(ACCEPT, "application/json").send().await.map_err(lost)?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let body = match body(&mut answer, BODY_LIMIT).await {
        Ok(body) => body,
        // The body was cut off, but the status says enough.
        Err(_) if !status.is_success() => Vec::new(),
        Err(Unread::Broken(error)) => return Err(lost(error)),
        Err(Unread::TooLong(limit)) => {
            let host = answer.url().host_str().unwrap_or(place);
            let text = format!("{host} answered with more than {} MiB; the rest was not read", limit >> 20);
            return Err(Failure::new(Unanswered::Cut.into(), doing, text).effect(Effect::of(method)));
        }
    };
    Ok(Answer { status, headers, body })
}

/// Posts JSON once; returns the status of the answer, whose text is not read.
///
/// # Errors
/// Why there is no answer, without the URL, which may be a secret.
pub async fn post_json(url: &str, text: Vec<u8>) -> Result<u16, String> {
    let url = Url::parse(url).map_err(|_| "the URL is invalid".to_owned())?;
    let http = client(&url).build().map_err(|error| innermost(&error).to_string())?;
    let sent = http.post(url).header(CONTENT_TYPE, "application/json").body(text).send().await;
    let answer = sent.map_err(|error| innermost(&error.without_url()).to_string())?;
    Ok(answer.status().as_u16())
}

/// Whether a call that changes something may have been carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It was not carried out.
    None,
    /// Unknown; only an observation can determine it.
    Unknown,
}

impl Effect {
    /// The effect of a call with this method whose answer is lost or unreadable.
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

/// Whether a call with this method may change something.
pub(super) fn changes(method: &Method) -> bool {
    method != Method::GET
}

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// The connection failed; nothing was sent.
    Unreachable,
    /// No answer within the timeout.
    Timeout,
    /// The connection broke before the answer was complete.
    Cut,
    /// The request is invalid and was not sent.
    NotSent,
}

/// A failed call; `K` is the provider's own classification.
#[derive(Debug, Clone)]
pub struct Failure<K> {
    /// The provider's classification of the failure.
    pub kind: K,
    /// The failed action and its place: `list the leases at CHI@UC`.
    pub doing: String,
    /// The service's message, or ours.
    pub text: String,
    /// The status code, if there was an answer.
    pub status: Option<u16>,
    /// Whether the call may have been carried out.
    pub effect: Effect,
    /// Hints that are more specific than the usual one for its kind.
    pub hints: Vec<String>,
    /// The wait before a retry that the service asks for, or that its rate limit requires.
    pub after: Option<Duration>,
}

impl<K> Failure<K> {
    /// Creates a failure without effect.
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

    /// Creates the failure of a request that got no answer.
    fn unanswered(doing: &str, method: &Method, error: &reqwest::Error, place: &str) -> Self
    where
        K: From<Unanswered>,
    {
        // No URL here has a secret.
        let cause = innermost(error);
        let place = error.url().and_then(Url::host_str).unwrap_or(place);
        let is_of_proxy = is_of_proxy(error);
        let (why, text) = match error {
            _ if is_of_proxy => (
                Unanswered::Unreachable,
                format!("{place} cannot be reached through the proxy in HTTPS_PROXY: {cause}"),
            ),
            error if error.is_connect() => (Unanswered::Unreachable, format!("{place} cannot be reached: {cause}")),
            error if error.is_timeout() => (Unanswered::Timeout, format!("{place} did not answer in time")),
            error if error.is_builder() => (Unanswered::NotSent, format!("the request cannot be made: {cause}")),
            _ => (Unanswered::Cut, format!("the connection to {place} broke: {cause}")),
        };
        let was_sent = matches!(why, Unanswered::Timeout | Unanswered::Cut);
        let failure = Self::new(why.into(), doing, text);
        let failure = failure.effect(if was_sent { Effect::of(method) } else { Effect::None });
        if !is_of_proxy {
            return failure;
        }
        failure.hint(format!("check the proxy's address and login, or go past it: export NO_PROXY={place}"))
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Sets whether the call may have been carried out.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// Whether the server's certificate is not trusted, which a retry does not change.
    pub fn is_of_certificate(&self) -> bool {
        self.text.contains("certificate") || self.text.contains("UnknownIssuer")
    }

    /// Converts it into the error to show; `usual` is the hint for its kind, used if there is no more specific one.
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
    fn an_id_stays_within_its_path_segment() {
        assert_eq!(part("0920582c7ff0"), "0920582c7ff0");
        assert_eq!(part("CC-Ubuntu24.04"), "CC-Ubuntu24.04");
        assert_eq!(part("../instances?x=1"), "..%2Finstances%3Fx%3D1");
        assert_eq!(part("a_b~ü%"), "a_b~%C3%BC%25");
        assert_eq!((part("."), part(".."), part("")), ("%2E".to_owned(), "%2E%2E".to_owned(), String::new()));
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
    fn retry_after_takes_seconds_or_a_date() {
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
    async fn an_endless_answer_is_read_only_up_to_the_limit() {
        use crate::util::http::endless;
        let (address, sent) = endless::server("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n").await;
        let url = Url::parse(&address).unwrap();
        let http = client(&url).build().unwrap();
        #[derive(Debug)]
        struct Kind;
        impl From<Unanswered> for Kind {
            fn from(_: Unanswered) -> Self {
                Self
            }
        }
        let asked = ask::<Kind>(http.get(url), &Method::GET, "list the leases", "there").await;
        let Err(failure) = asked else { panic!("it ended") };
        assert_eq!(failure.text, "127.0.0.1 answered with more than 32 MiB; the rest was not read");
        let sent = sent.load(std::sync::atomic::Ordering::Relaxed);
        assert!(sent < 2 * BODY_LIMIT as u64, "{sent} bytes were taken");
    }

    #[test]
    fn only_a_call_that_changes_something_has_an_unknown_effect() {
        assert_eq!(LeftBehind::from(Effect::of(&Method::GET)), LeftBehind::Clear);
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert_eq!(LeftBehind::from(Effect::of(&method)), LeftBehind::Unknown);
        }
    }
}
