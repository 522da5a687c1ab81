//! One call: its turn, its answer, and what a failure of it means.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, Method, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::{Api, Failure, FailureKind, classify, is_page};
use super::pace::{Pace, Turn};
use crate::error::{Doing as _, Error, ErrorKind, Result};
use crate::event::Bus;
use crate::provider::http::{self, Answer, Effect, changes};
use crate::util::text::shortened;

/// The longest that Lambda may make us wait by its `Retry-After`.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How often a call is tried again.
const AGAIN: u32 = 3;
/// Before the first of these; each later one waits twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// No limit is shorter, however much of a hurry a stand-in is in.
const LEAST_LIMIT: Duration = Duration::from_secs(10);

/// One account at Lambda. Cheap to clone; nothing is sent when it is made.
#[derive(Clone)]
pub(crate) struct Account {
    inner: Arc<Inner>,
}

struct Inner {
    base: String,
    place: String,
    key: SecretString,
    source: String,
    client: Client,
    pace: Pace,
    events: Bus,
}

/// What a success looks like.
#[derive(Deserialize)]
struct Success {
    data: Value,
}

impl Account {
    /// Makes an account of where it is, the key, and where that is known from.
    pub(crate) fn new(endpoint: &Url, key: SecretString, source: &str, pace: Pace, events: Bus) -> Result<Self> {
        let doing = || format!("prepare connections to {endpoint}");
        let client = http::client(endpoint)
            // On a connection that was kept a server may close just then, and it could not be told whether a call that changes
            // something was carried out. At one call a second, a new one for each costs little.
            .pool_max_idle_per_host(0)
            .build()
            .doing(ErrorKind::Internal, doing)?;
        let inner = Inner {
            base: format!("{}/api/v1", endpoint.as_str().trim_end_matches('/')),
            place: place_of(endpoint),
            key,
            source: source.to_owned(),
            client,
            pace,
            events,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Where the key is known from.
    pub(crate) fn source(&self) -> &str {
        &self.inner.source
    }

    /// A time of Lambda's, as long as it is here.
    pub(crate) fn scaled(&self, time: Duration) -> Duration {
        self.inner.pace.scaled(time)
    }

    /// How long something may take here that takes so long at Lambda: with a stand-in in a hurry, this machine may be slow.
    pub(crate) fn limit(&self, time: Duration) -> Duration {
        self.scaled(time).max(LEAST_LIMIT.min(time))
    }

    /// Reads what stands at a path.
    pub(super) async fn read<T: DeserializeOwned>(&self, path: &str, doing: &str) -> Api<T> {
        self.patiently(&Method::GET, path, None, Turn::Call, doing).await
    }

    /// Changes something, and reads what came of it.
    pub(super) async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        doing: &str,
    ) -> Api<T> {
        let turn = if path == super::LAUNCH_PATH { Turn::Launch } else { Turn::Call };
        self.patiently(&method, path, body.as_ref(), turn, doing).await
    }

    /// Makes a call, and makes it again while that may help and does nothing twice.
    async fn patiently<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        turn: Turn,
        doing: &str,
    ) -> Api<T> {
        let doing = format!("{doing} at {}", self.inner.place);
        let pace = &self.inner.pace;
        let mut pause = pace.scaled(FIRST_PAUSE);
        for attempt in 0.. {
            let called = pace.turn(turn).await;
            let answer = self.once(method, path, body, &doing).await;
            pace.answered(called);
            let failure = match answer {
                Ok(data) => return data_of(data, method, &doing),
                Err(failure) => failure,
            };
            if attempt >= AGAIN || !may_be_tried_again(&failure, method) {
                return Err(failure);
            }
            let wait = match failure.kind {
                FailureKind::RateLimited => failure.after.unwrap_or_else(|| pace.penalty(turn)),
                _ => failure.after.unwrap_or(pause),
            };
            if wait > LONGEST_WAIT {
                return Err(failure);
            }
            if failure.kind == FailureKind::RateLimited {
                // What was said to one process is meant for all.
                pace.hold(turn, wait);
            }
            failure.wait(wait, &self.inner.events).await;
            pause *= 2;
        }
        Err(Failure::new(FailureKind::Timeout, doing, "it was tried too often"))
    }

    async fn once(&self, method: &Method, path: &str, body: Option<&Value>, doing: &str) -> Api<Value> {
        let inner = &self.inner;
        let mut request = inner
            .client
            .request(method.clone(), format!("{}{path}", inner.base))
            .header(AUTHORIZATION, self.authorization(doing)?);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer: Answer = http::ask(request, method, doing, "Lambda").await?;
        let status = answer.status;
        if status.is_redirection() {
            let text = format!("it answered {}: the address leads elsewhere", status.as_u16());
            return Err(Failure::new(FailureKind::Refused, doing, text).hint(
                "the address is https://cloud.lambda.ai; `endpoint:` in the spec or LAMBDA_API_URL says otherwise",
            ));
        }
        if status.is_success() {
            return read_success(&answer.body).map_err(|text| unreadable(doing, method, text));
        }
        let mut failure = Failure { after: answer.retry_after(), ..classify(doing, method, status, &answer.body) };
        if failure.kind == FailureKind::InvalidKey {
            failure.text = format!("the key of {} is refused: {}", inner.source, failure.text);
        }
        Err(failure)
    }

    fn authorization(&self, doing: &str) -> Api<HeaderValue> {
        let text = SecretString::from(format!("Bearer {}", self.inner.key.expose_secret().trim()));
        let mut value = HeaderValue::from_str(text.expose_secret()).map_err(|_| {
            let text = format!("the key of {} holds characters that no key may", self.inner.source);
            Failure::new(FailureKind::InvalidKey, doing, text)
        })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// What a person calls this address.
pub(crate) fn place_of(endpoint: &Url) -> String {
    match (endpoint.host_str(), endpoint.port()) {
        (Some("cloud.lambda.ai"), None) => "Lambda".to_owned(),
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => endpoint.to_string(),
    }
}

fn may_be_tried_again(failure: &Failure, method: &Method) -> bool {
    match failure.kind {
        // Neither was carried out, whatever it was.
        FailureKind::RateLimited => true,
        FailureKind::Unreachable => !failure.is_of_certificate(),
        FailureKind::Conflict => false,
        _ => !changes(method) && failure.passes(),
    }
}

pub(super) fn read_success(body: &[u8]) -> std::result::Result<Value, String> {
    match serde_json::from_slice::<Success>(body) {
        Ok(success) => Ok(success.data),
        Err(_) if is_page(body) => Err("a web page answered, with a status of success".to_owned()),
        Err(error) => Err(not_expected(&error)),
    }
}

/// What was asked for, out of an answer's data; the call itself was a success.
pub(super) fn data_of<T: DeserializeOwned>(data: Value, method: &Method, doing: &str) -> Api<T> {
    serde_json::from_value(data).map_err(|error| unreadable(doing, method, not_expected(&error)))
}

/// What the reader says of a text has the text's own words in it, as long as they are.
fn not_expected(error: &serde_json::Error) -> String {
    format!("the answer is not what was expected: {}", shortened(&error.to_string()))
}

/// An answer that cannot be read; the call itself was a success.
fn unreadable(doing: &str, method: &Method, text: String) -> Failure {
    Failure::new(FailureKind::NoApi, doing, text).effect(Effect::of(method))
}

/// Reads an endpoint as a person writes it.
pub(crate) fn endpoint(text: &str) -> Result<Url> {
    let doing = || "read the address of Lambda".to_owned();
    let bare = text.trim().trim_end_matches('/').trim_end_matches("/api/v1");
    let url = Url::parse(bare).map_err(|error| {
        Error::new(ErrorKind::Usage, doing())
            .because(format!("`{text}` is no address: {error}"))
            .hint("it looks like https://cloud.lambda.ai")
    })?;
    if http::is_private(&url) {
        return Ok(url);
    }
    Err(Error::new(ErrorKind::Usage, doing())
        .because(format!("`{text}` would carry the key unencrypted: it takes https, and http on this machine only"))
        .hint("it looks like https://cloud.lambda.ai"))
}

impl fmt::Debug for Account {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Account").field("place", &self.inner.place).finish_non_exhaustive()
    }
}
