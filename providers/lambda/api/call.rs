//! One call: its turn, its response, and its retries.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBuilder;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, Method, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::{Api, Failure, FailureKind, classify, is_page};
use super::pace::{Pace, Turn};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Bus;
use crate::provider::kit::http::{self, Answer, Effect};
use crate::provider::kit::{Call, Patience};
use crate::util::text::shortened;

/// The longest `Retry-After` that is honoured; beyond it the call fails.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The maximum number of retries of a call.
const AGAIN: usize = 3;
/// The pause before the first retry; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The minimum of scaled limits, also for a stand-in with a fast pace.
const LEAST_LIMIT: Duration = Duration::from_secs(10);
/// The path for launches, which have a rate limit of their own.
pub(super) const LAUNCH_PATH: &str = "/instance-operations/launch";

/// One account at Lambda. Cheap to clone.
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

#[derive(Deserialize)]
struct Success {
    data: Value,
}

impl Account {
    /// Makes a client from Lambda's address, the key and the key's source; sends nothing yet.
    pub(crate) fn new(endpoint: &Url, key: SecretString, source: &str, pace: Pace, events: Bus) -> Result<Self> {
        let doing = || format!("prepare connections to {endpoint}");
        let builder = http::client(endpoint)
            // The server may close a kept connection just then, leaving it unknown whether a changing call was carried
            // out. At one call a second, a new connection for each costs little.
            .pool_max_idle_per_host(0);
        let client = http::built(builder, doing)?;
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

    /// The source of the key, for display.
    pub(crate) fn source(&self) -> &str {
        &self.inner.source
    }

    /// Scales a duration by the pace factor.
    pub(crate) fn scaled(&self, time: Duration) -> Duration {
        self.inner.pace.scaled(time)
    }

    /// Scales a limit, with a minimum: a stand-in's pace may be fast while this machine is slow.
    pub(crate) fn limit(&self, time: Duration) -> Duration {
        self.scaled(time).max(LEAST_LIMIT.min(time))
    }

    pub(super) async fn read<T: DeserializeOwned>(&self, path: &str, doing: &str) -> Api<T> {
        self.patiently(&Method::GET, path, None, Turn::Call, doing).await
    }

    /// Makes a changing call, and reads its result.
    pub(super) async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        doing: &str,
    ) -> Api<T> {
        let turn = if path == LAUNCH_PATH { Turn::Launch } else { Turn::Call };
        self.patiently(&method, path, body.as_ref(), turn, doing).await
    }

    /// Makes a call, and retries it while that may help and repeats no effect.
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
        let pauses = ExponentialBuilder::new().with_min_delay(pace.scaled(FIRST_PAUSE)).with_max_times(AGAIN);
        let patience = Patience { pauses, longest: LONGEST_WAIT, events: &self.inner.events };
        let once = || async {
            let called = pace.turn(turn).await;
            let answer = self.once(method, path, body, &doing).await;
            pace.answered(called);
            answer.map_err(|failure| match failure.kind {
                // A 429 need not have `Retry-After`.
                FailureKind::RateLimited => {
                    Failure { after: failure.after.or_else(|| Some(pace.penalty(turn))), ..failure }
                }
                _ => failure,
            })
        };
        let before_wait = |failure: &Failure, wait: Duration| {
            if failure.kind == FailureKind::RateLimited {
                // A rate limit applies to all processes.
                pace.hold(turn, wait);
            }
        };
        let data = patience.retry(Call::of(method), once, before_wait).await?;
        data_of(data, method, &doing)
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
            let text = format!("it answered {}: the address is redirected", status.as_u16());
            return Err(Failure::new(FailureKind::Refused, doing, text).hint(
                "the default address is https://cloud.lambda.ai; check `endpoint:` in the spec and LAMBDA_API_URL",
            ));
        }
        if status.is_success() {
            return read_success(&answer.body).map_err(|text| unreadable(doing, method, text));
        }
        let mut failure = Failure { after: answer.retry_after(), ..classify(doing, method, status, &answer.body) };
        if failure.kind == FailureKind::InvalidKey {
            failure.text = format!("the key from {} is refused: {}", inner.source, failure.text);
        }
        Err(failure)
    }

    fn authorization(&self, doing: &str) -> Api<HeaderValue> {
        let text = SecretString::from(format!("Bearer {}", self.inner.key.expose_secret().trim()));
        let mut value = HeaderValue::from_str(text.expose_secret()).map_err(|_| {
            let text = format!("the key from {} has characters that are not allowed in a key", self.inner.source);
            Failure::new(FailureKind::InvalidKey, doing, text)
        })?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// The display name of an address: `Lambda`, or host and port.
pub(crate) fn place_of(endpoint: &Url) -> String {
    match (endpoint.host_str(), endpoint.port()) {
        (Some("cloud.lambda.ai"), None) => "Lambda".to_owned(),
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => endpoint.to_string(),
    }
}

pub(super) fn read_success(body: &[u8]) -> std::result::Result<Value, String> {
    match serde_json::from_slice::<Success>(body) {
        Ok(success) => Ok(success.data),
        Err(_) if is_page(body) => Err("a web page answered, with a success status".to_owned()),
        Err(error) => Err(not_expected(&error)),
    }
}

/// Decodes the data of a successful response.
pub(super) fn data_of<T: DeserializeOwned>(data: Value, method: &Method, doing: &str) -> Api<T> {
    serde_json::from_value(data).map_err(|error| unreadable(doing, method, not_expected(&error)))
}

/// Describes a parser error, shortened, since it may quote the response at any length.
fn not_expected(error: &serde_json::Error) -> String {
    format!("unexpected response: {}", shortened(&error.to_string()))
}

/// The failure of an unreadable response; the call itself succeeded.
fn unreadable(doing: &str, method: &Method, text: String) -> Failure {
    Failure::new(FailureKind::NoApi, doing, text).effect(Effect::of(method))
}

/// Parses an endpoint, with or without `/api/v1`.
pub(crate) fn endpoint(text: &str) -> Result<Url> {
    let doing = || "read the address of Lambda".to_owned();
    let bare = text.trim().trim_end_matches('/').trim_end_matches("/api/v1");
    let url = Url::parse(bare).map_err(|error| {
        Error::new(ErrorKind::Usage, doing())
            .because(format!("`{text}` is not a URL: {error}"))
            .hint("it looks like https://cloud.lambda.ai")
    })?;
    if http::is_private(&url) {
        return Ok(url);
    }
    Err(Error::new(ErrorKind::Usage, doing())
        .because(format!("`{text}` would send the key unencrypted: use https; http is allowed on this machine only"))
        .hint("it looks like https://cloud.lambda.ai"))
}

impl fmt::Debug for Account {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Account").field("place", &self.inner.place).finish_non_exhaustive()
    }
}
