//! The client: one address, one token, and a timeout on every call.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result, Status};
use crate::util::http::{Unread, body, innermost};
use crate::util::text::shortened;

/// The timeout of a read.
const READ_LIMIT: Duration = Duration::from_secs(20);
/// The timeout for connecting.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The longest answer that is read, except logs, in bytes: the job list of an old cluster is some megabytes.
const BODY_LIMIT: usize = 64 * 1024 * 1024;
/// How much of an error response is read, in bytes.
const ERROR_BODY_LIMIT: usize = 256 * 1024;
/// The hint if Ray does not answer.
const STATUS_HINT: &str = "is the cluster up? `gpucl status`";

/// A client of one cluster's Ray dashboard and job API.
#[derive(Clone)]
pub struct Client {
    base: String,
    token: SecretString,
    /// The names of nodes that have none of ours, by their addresses.
    pub(super) names: BTreeMap<String, String>,
    // Building fails only if the system does; the first call reports it, so that `new` is infallible.
    http: std::result::Result<reqwest::Client, String>,
}

/// Which token a probe sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenChoice {
    /// No token.
    None,
    /// An invalid token.
    Wrong,
    /// The cluster's token.
    Right,
}

/// Ray's version information.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The version of Ray.
    pub ray_version: String,
    /// The commit it was built from.
    #[serde(default)]
    pub ray_commit: String,
    /// The name of the head's session; it changes with each restart.
    #[serde(default)]
    pub session_name: String,
}

impl Client {
    /// Creates a client for the dashboard's address, such as `http://127.0.0.1:8265`, with the cluster's token.
    pub fn new(base: impl Into<String>, token: SecretString) -> Self {
        let base = base.into().trim_end_matches('/').to_owned();
        // No redirects: the token goes only to this address.
        let http = crate::util::http::loopback_client()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_LIMIT)
            .build()
            .map_err(|error| error.to_string());
        Self { base, token, names: BTreeMap::new(), http }
    }

    /// Gives names to nodes that a platform has started, by their addresses.
    pub fn with_names(self, names: BTreeMap<String, String>) -> Self {
        Self { names, ..self }
    }

    /// The dashboard's address.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Asks Ray for its version. This requires the right token, so it also checks ours.
    ///
    /// # Errors
    /// If Ray does not answer or refuses the token.
    pub async fn version(&self) -> Result<Version> {
        self.read("/api/version", "ask Ray for its version").await
    }

    /// Asks which authentication Ray enforces: `token` or `disabled`.
    ///
    /// # Errors
    /// If Ray does not answer.
    pub async fn authentication_mode(&self) -> Result<String> {
        #[derive(Deserialize)]
        struct Mode {
            authentication_mode: String,
        }
        let mode: Mode = self.read("/api/authentication_mode", "ask Ray for its authentication").await?;
        Ok(mode.authentication_mode)
    }

    /// Sends one GET with this choice of token and returns the status code, whatever it is. No retries.
    ///
    /// # Errors
    /// If nothing answers.
    pub async fn probe(&self, path: &str, token: TokenChoice) -> Result<u16> {
        let doing = format!("probe {}{path}", self.base);
        let http = self.http(&doing)?;
        let mut request = http.get(format!("{}{path}", self.base)).timeout(READ_LIMIT);
        match token {
            TokenChoice::None => {}
            TokenChoice::Wrong => request = request.header(AUTHORIZATION, "Bearer this-is-not-the-token"),
            TokenChoice::Right => request = request.header(AUTHORIZATION, self.bearer(&doing)?),
        }
        let answer = request.send().await.map_err(|error| transport(&doing, &self.base, &error))?;
        Ok(answer.status().as_u16())
    }

    /// Reads JSON; temporary failures are retried.
    pub(super) async fn read<T: DeserializeOwned>(&self, path: &str, doing: &str) -> Result<T> {
        let answer = self.read_answer(path, doing).await?;
        decode(answer, doing).await
    }

    /// Reads JSON of at most this length in bytes; temporary failures are retried.
    pub(super) async fn read_long<T: DeserializeOwned>(&self, path: &str, limit: usize, doing: &str) -> Result<T> {
        let answer = self.read_answer(path, doing).await?;
        decoded(&whole(answer, limit, doing).await?, doing)
    }

    /// Reads a successful response; temporary failures are retried.
    pub(super) async fn read_answer(&self, path: &str, doing: &str) -> Result<Response> {
        let once = || async {
            let request = self.request(Method::GET, path, doing)?.timeout(READ_LIMIT);
            self.send(request, doing).await
        };
        let again = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(150))
            .with_max_delay(Duration::from_secs(2))
            .with_max_times(4);
        once.retry(again).when(|error: &Error| error.retry_status() == Status::Temporary).await.map_err(|error| {
            if error.retry_status() == Status::Temporary { error.status(Status::Persistent) } else { error }
        })
    }

    /// Creates a request with the token.
    pub(super) fn request(&self, method: Method, path: &str, doing: &str) -> Result<RequestBuilder> {
        let url = format!("{}{path}", self.base);
        Ok(self.http(doing)?.request(method, url).header(AUTHORIZATION, self.bearer(doing)?))
    }

    /// Sends a request once; an error status becomes an error.
    pub(super) async fn send(&self, request: RequestBuilder, doing: &str) -> Result<Response> {
        let answer = request.send().await.map_err(|error| transport(doing, &self.base, &error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        Err(refused(doing, status, &error_text(answer).await))
    }

    /// The `Authorization` header's value, marked as sensitive so that it is never shown.
    pub(super) fn bearer(&self, doing: &str) -> Result<HeaderValue> {
        let mut value =
            HeaderValue::from_str(&format!("Bearer {}", self.token.expose_secret().trim())).map_err(|_| {
                Error::new(ErrorKind::Ray, doing).because("the cluster's token has characters not allowed in a header")
            })?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn http(&self, doing: &str) -> Result<&reqwest::Client> {
        self.http.as_ref().map_err(|cause| Error::new(ErrorKind::Internal, doing).because(cause))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Client").field("base", &self.base).finish_non_exhaustive()
    }
}

/// Decodes a response as JSON.
pub(super) async fn decode<T: DeserializeOwned>(answer: Response, doing: &str) -> Result<T> {
    decoded(&whole(answer, BODY_LIMIT, doing).await?, doing)
}

/// Reads a whole response; fails if it is longer than the limit.
pub(super) async fn whole(mut answer: Response, limit: usize, doing: &str) -> Result<Vec<u8>> {
    body(&mut answer, limit).await.map_err(|unread| match unread {
        Unread::Broken(error) => transport(doing, "Ray", &error),
        Unread::TooLong(limit) => Error::new(ErrorKind::Ray, doing)
            .because(format!("the answer is longer than {} MiB; the rest was not read", limit >> 20)),
    })
}

fn decoded<T: DeserializeOwned>(body: &[u8], doing: &str) -> Result<T> {
    serde_json::from_slice(body).map_err(|error| {
        Error::new(ErrorKind::Ray, doing)
            .because(format!("unexpected answer from Ray: {}", shortened(&error.to_string())))
            .hint("is something else listening there? `gpucl verify`")
    })
}

/// The error for a response with an error status.
pub(super) fn refused(doing: &str, status: StatusCode, body: &str) -> Error {
    let short = short_text(body);
    let said = if short.is_empty() { String::new() } else { format!(": {short}") };
    match status {
        StatusCode::NOT_FOUND => {
            Error::new(ErrorKind::NotFound, doing).because(lowered(&short, "Ray does not know it"))
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Error::new(ErrorKind::Ray, doing)
            .because(format!("Ray refused the cluster's token ({}){said}", status.as_u16()))
            .hint("does this address belong to another cluster now? `gpucl status`"),
        status if status.is_server_error() => Error::new(ErrorKind::Ray, doing)
            .because(format!("Ray answered {}{said}", status.as_u16()))
            // A log that is not UTF-8 stays so.
            .status(if short.contains("UnicodeDecodeError") { Status::Permanent } else { Status::Temporary })
            .hint("see the head's log: `gpucl logs head`"),
        status => Error::new(ErrorKind::Ray, doing).because(format!("Ray answered {}{said}", status.as_u16())),
    }
}

/// The error for a request that got no answer.
pub(super) fn transport(doing: &str, address: &str, error: &reqwest::Error) -> Error {
    if error.is_timeout() {
        return Error::new(ErrorKind::Timeout, doing)
            .because(format!("{address} did not answer in time"))
            .hint(STATUS_HINT);
    }
    Error::new(ErrorKind::Ray, doing)
        .because(format!("{address} cannot be reached"))
        .because(innermost(error))
        .status(Status::Temporary)
        .hint(STATUS_HINT)
}

/// The body of an error response, as far as it is useful.
pub(super) async fn error_text(mut answer: Response) -> String {
    let mut body = Vec::new();
    while let Ok(Ok(Some(chunk))) = tokio::time::timeout(CONNECT_LIMIT, answer.chunk()).await {
        body.extend_from_slice(&chunk);
        if body.len() > ERROR_BODY_LIMIT {
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// The line of a server's text that says what is wrong.
///
/// For a Python traceback that is the exception's line, not the first one.
pub(super) fn short_text(body: &str) -> String {
    let mut lines = body.lines().map(str::trim_end).filter(|line| !line.trim().is_empty());
    let traceback = body.trim_start().starts_with("Traceback");
    let line = if traceback {
        lines.rfind(|line| {
            !line.starts_with(char::is_whitespace) && !line.starts_with("Traceback") && line.contains(':')
        })
    } else {
        lines.next()
    };
    let line = line.unwrap_or_default().trim();
    match line.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

fn lowered(text: &str, otherwise: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => otherwise.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_in_no_debug_form() {
        let client = Client::new("http://127.0.0.1:1/", SecretString::from("hush".to_owned()));
        assert_eq!(format!("{client:?}"), r#"Client { base: "http://127.0.0.1:1", .. }"#);
        assert!(!format!("{:?}", client.request(Method::GET, "/", "x").unwrap()).contains("hush"));
    }

    #[tokio::test]
    async fn an_endless_answer_is_read_only_up_to_the_limit() {
        use crate::util::http::endless;
        let (address, sent) = endless::server("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n").await;
        let client = Client::new(address, SecretString::from("hush".to_owned()));
        let error = client.version().await.unwrap_err();
        assert!(error.causes().iter().any(|cause| cause.contains("longer than 64 MiB")), "{error:?}");
        let sent = sent.load(std::sync::atomic::Ordering::Relaxed);
        assert!(sent < 2 * BODY_LIMIT as u64, "{sent} bytes were taken");
    }

    #[test]
    fn a_traceback_is_shown_by_its_last_line() {
        let body = "Traceback (most recent call last):\n  File \"a.py\", line 1\n    raise ValueError(x)\nValueError: Job j already exists.\n";
        assert_eq!(short_text(body), "ValueError: Job j already exists.");
        assert_eq!(short_text("Job nope does not exist\nmore"), "Job nope does not exist");
    }
}
