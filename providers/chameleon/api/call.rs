//! One call: the token, the response, and the meaning of a failure.

use jiff::SignedDuration;
use reqwest::header::{DATE, HeaderValue};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::{Api, Failure, FailureKind, classify};
use super::site::Site;
use crate::provider::kit::Call;
use crate::provider::kit::http::{self, Answer, Effect};
use crate::util::text::shortened;
use crate::util::when;

/// The header for the token.
pub(super) const TOKEN: &str = "X-Auth-Token";
/// The page limit of a list; only a service whose pages lead in a circle exceeds it.
const MOST_PAGES: usize = 200;
/// The smallest clock skew to report: requests give times in minutes.
const LEAST_SKEW: SignedDuration = SignedDuration::from_mins(1);

impl Site {
    /// Reads the value below `key`, or the whole response if `key` is empty.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        service: &'static str,
        path: &str,
        key: &str,
        doing: &str,
    ) -> Api<T> {
        let value = self.read_value(service, path, doing).await?;
        decode(below(value, key), &self.at(doing), &Method::GET)
    }

    /// Reads one object; `None` if it does not exist.
    pub(super) async fn one<T: DeserializeOwned>(
        &self,
        service: &'static str,
        path: &str,
        key: &str,
        doing: &str,
    ) -> Api<Option<T>> {
        match self.read(service, path, key, doing).await {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.kind == FailureKind::NotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads a list to its last page.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        service: &'static str,
        path: &str,
        key: &str,
        doing: &str,
    ) -> Api<Vec<T>> {
        let mut items = Vec::new();
        let mut page = path.to_owned();
        for _ in 0..MOST_PAGES {
            let value = self.read_value(service, &page, doing).await?;
            let next = next_page(&value, key, path).filter(|next| *next != page);
            // An unreadable item is an error, not skipped: a resource that is not listed is never deleted.
            let found: Vec<T> = decode(below(value, key), &self.at(doing), &Method::GET)?;
            items.extend(found);
            match next {
                Some(next) => page = next,
                None => return Ok(items),
            }
        }
        Err(Failure::new(FailureKind::Malformed, self.at(doing), "the pages of the list do not end"))
    }

    async fn read_value(&self, service: &'static str, path: &str, doing: &str) -> Api<Value> {
        let once = || async {
            let answer = self.once(&Method::GET, service, path, None, doing).await?;
            json_of(&answer, &self.at(doing), &Method::GET)
        };
        self.with_patience(Call::Read, once).await
    }

    /// Makes a changing call, and reads its result.
    pub(super) async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        service: &'static str,
        path: &str,
        body: Option<Value>,
        key: &str,
        doing: &str,
    ) -> Api<T> {
        let answer = self.changed(&method, service, path, body.as_ref(), doing).await?;
        let value = json_of(&answer, &self.at(doing), &method)?;
        decode(below(value, key), &self.at(doing), &method)
    }

    /// Makes a changing call, and ignores the response body.
    pub(super) async fn change_blindly(
        &self,
        method: Method,
        service: &'static str,
        path: &str,
        body: Option<Value>,
        doing: &str,
    ) -> Api<()> {
        self.changed(&method, service, path, body.as_ref(), doing).await.map(|_| ())
    }

    /// Deletes an object; "not found" counts as success.
    pub(super) async fn remove(&self, service: &'static str, path: &str, doing: &str) -> Api<()> {
        match self.changed(&Method::DELETE, service, path, None, doing).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.kind == FailureKind::NotFound => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    async fn changed(
        &self,
        method: &Method,
        service: &'static str,
        path: &str,
        body: Option<&Value>,
        doing: &str,
    ) -> Api<Answer> {
        self.with_patience(Call::Change, || self.once(method, service, path, body, doing)).await
    }

    /// Makes a call with the current token, and once more with a new one if that is refused.
    async fn once(
        &self,
        method: &Method,
        service: &'static str,
        path: &str,
        body: Option<&Value>,
        doing: &str,
    ) -> Api<Answer> {
        let client = self.client(Call::of(method));
        let mut session = self.session(None).await?;
        let mut renewed = false;
        loop {
            let doing = self.at(doing);
            let credentials = self.credentials();
            let base = session.endpoint(service, self.region(), &credentials.interface, &doing)?;
            let mut request = client.request(method.clone(), format!("{base}{path}"));
            request = request.header(TOKEN, secret_header(&session.token, &doing)?);
            if let Some(body) = body {
                request = request.json(body);
            }
            match ask(request, method, &doing).await {
                Err(failure) if failure.status == Some(401) && !renewed => {
                    session = self.session(Some(&session)).await?;
                    renewed = true;
                }
                Err(failure) if failure.status == Some(401) => {
                    let text = format!("the {service} service refuses a new token: {}", failure.text);
                    return Err(Failure { kind: FailureKind::Forbidden, text, ..failure });
                }
                Err(failure) if failure.kind == FailureKind::Forbidden && !session.reads() => {
                    let roles = session.who().roles.join(", ");
                    let text = format!("{} (its roles are {roles}, and `reader` is not among them)", failure.text);
                    return Err(Failure { text, ..failure });
                }
                other => return other,
            }
        }
    }
}

/// Sends a request once; an unsuccessful status is a failure.
pub(super) async fn ask(request: RequestBuilder, method: &Method, doing: &str) -> Api<Answer> {
    let answer = http::ask(request, method, doing, "the site").await.map_err(|failure: Failure| {
        if !failure.is_of_certificate() {
            return failure;
        }
        failure.hint(
            "a site with its own certificate authority needs the CA's file: `cacert:` in clouds.yaml, or OS_CACERT",
        )
    })?;
    let status = answer.status;
    if status.is_success() {
        return Ok(answer);
    }
    if status.is_redirection() && status != StatusCode::MULTIPLE_CHOICES {
        let text = format!("the service answered {}: its address is redirected", status.as_u16());
        return Err(Failure { status: Some(status.as_u16()), ..Failure::new(FailureKind::Refused, doing, text) });
    }
    let failure = Failure { after: answer.retry_after(), ..classify(doing, method, status, &answer.body) };
    Err(match skew(&answer).filter(|_| failure.kind == FailureKind::PastDate) {
        Some(skew) => Failure { text: format!("{}; {skew}", failure.text), ..failure },
        None => failure,
    })
}

/// Parses a response as JSON.
pub(super) fn json_of(answer: &Answer, doing: &str, method: &Method) -> Api<Value> {
    serde_json::from_slice(&answer.body).map_err(|error| malformed(doing, method, &error))
}

/// A header whose value is never displayed.
pub(super) fn secret_header(secret: &SecretString, doing: &str) -> Api<HeaderValue> {
    let mut value = HeaderValue::from_str(secret.expose_secret().trim()).map_err(|_| {
        Failure::new(FailureKind::Incomplete, doing, "the token has characters not allowed in a header")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Describes the skew of the service's clock, if it is at least `LEAST_SKEW`.
fn skew(answer: &Answer) -> Option<String> {
    let text = answer.headers.get(DATE)?.to_str().ok()?.trim();
    let there = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    let ahead = when::between(jiff::Timestamp::now(), there);
    let direction = if ahead.is_positive() { "ahead of" } else { "behind" };
    // To the nearest minute: the header has no fractions, and the response took some time.
    let skew = when::length(ahead.abs() + LEAST_SKEW / 2);
    (ahead.abs() >= LEAST_SKEW).then(|| format!("the site's clock is {skew} {direction} this machine's"))
}

pub(super) fn below(value: Value, key: &str) -> Value {
    match value {
        value if key.is_empty() => value,
        Value::Object(mut map) => map.remove(key).unwrap_or_default(),
        _ => Value::Null,
    }
}

pub(super) fn decode<T: DeserializeOwned>(value: Value, doing: &str, method: &Method) -> Api<T> {
    serde_json::from_value(value).map_err(|error| malformed(doing, method, &error))
}

/// The failure of an unreadable response; the call itself succeeded.
fn malformed(doing: &str, method: &Method, error: &serde_json::Error) -> Failure {
    let text = format!("unexpected response of the service: {}", shortened(&error.to_string()));
    Failure::new(FailureKind::Malformed, doing, text).effect(Effect::of(method))
}

/// The path of the next page. Only the query of the given URL is used: behind a proxy its host may be wrong.
pub(super) fn next_page(value: &Value, key: &str, path: &str) -> Option<String> {
    let of_links = || {
        let links = value.get(format!("{key}_links"))?.as_array()?;
        let next = links.iter().find(|link| link.get("rel").and_then(Value::as_str) == Some("next"))?;
        next.get("href")?.as_str()
    };
    let href = value.get("next").and_then(Value::as_str).or_else(of_links)?;
    let query = href.split_once('?')?.1;
    Some(format!("{}?{query}", path.split('?').next().unwrap_or(path)))
}

/// An encoded query string.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    let Ok(mut url) = Url::parse("http://query") else { return String::new() };
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}
