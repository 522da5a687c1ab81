//! What a refusal means. Only its `code` is looked at: messages are for people, and change.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::error::{Error, ErrorKind, LeftBehind, Status};

/// The result of a call.
pub(crate) type Api<T> = std::result::Result<T, Failure>;

/// A call that did not succeed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// What it means.
    pub(crate) kind: FailureKind,
    /// What we were doing: `list the instances at Lambda`.
    pub(crate) doing: String,
    /// Lambda's own words, or ours.
    pub(crate) text: String,
    /// Whether the call may have been carried out.
    pub(crate) effect: Effect,
    /// What to do about it, where that is nearer than what is usual for its kind.
    pub(crate) hints: Vec<String>,
    /// The status code, when there was an answer.
    pub(super) status: Option<u16>,
    /// When Lambda wants to be asked again.
    pub(super) after: Option<Duration>,
}

/// What a failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The key is none, or is not good any more.
    InvalidKey,
    /// The account is inactive, or its address is not valid: it can launch nothing.
    AccountInactive,
    /// The key may not do this.
    Forbidden,
    /// Refused for what it asks.
    InvalidParameters,
    /// The account's quota is used up.
    Quota,
    /// Something of this name is there already.
    Duplicate,
    /// It does not exist.
    NotFound,
    /// None of this type is free in this region now.
    NoCapacity,
    /// The file system is in another region than the instance.
    WrongRegion,
    /// An instance still has it.
    InUse,
    /// Something else is being done with it.
    Conflict,
    /// Asked too often.
    RateLimited,
    /// Lambda, or what stands behind it, failed.
    Fault,
    /// A web page, or something else that is no answer of Lambda's.
    NoApi,
    /// The connection broke before the answer was whole.
    Cut,
    /// No answer in time.
    Timeout,
    /// Nothing answers there; nothing was sent.
    Unreachable,
    /// A refusal that is not known.
    Refused,
}

/// Whether a call that changes something may have been carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It was not.
    None,
    /// It cannot be told; only looking tells.
    Unknown,
}

impl Failure {
    /// A failure without effect.
    pub(crate) fn new(kind: FailureKind, doing: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            kind,
            doing: doing.into(),
            text: text.into(),
            effect: Effect::None,
            hints: Vec::new(),
            status: None,
            after: None,
        }
    }

    /// Adds what to do.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    #[must_use]
    pub(super) fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// The same call may succeed a little later.
    pub(crate) fn passes(&self) -> bool {
        use FailureKind::{Conflict, Cut, Fault, NoApi, RateLimited, Timeout, Unreachable};
        match self.kind {
            RateLimited | Fault | Cut | Timeout | Unreachable | Conflict => true,
            // A page that a proxy answers with 5xx goes; one that says 403 stays.
            NoApi => self.status.is_none_or(|status| !(400..500).contains(&status)),
            _ => false,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        use FailureKind as Kind;
        let kind = match failure.kind {
            Kind::Timeout => ErrorKind::Timeout,
            Kind::NoCapacity => ErrorKind::Capacity,
            _ => ErrorKind::Provider,
        };
        let status = match failure.kind {
            Kind::NoCapacity => Status::Temporary,
            // Who reads has tried these again already.
            _ if failure.passes() => Status::Persistent,
            _ => Status::Permanent,
        };
        let left = match failure.effect {
            Effect::None => LeftBehind::Clear,
            Effect::Unknown => LeftBehind::Unknown,
        };
        let usual = hint_of(failure.kind);
        let error = Self::new(kind, failure.doing).because(failure.text).status(status).left(left);
        match usual {
            Some(hint) if failure.hints.is_empty() => error.hint(hint),
            _ => failure.hints.iter().fold(error, |error, hint| error.hint(hint)),
        }
    }
}

/// What to do about a failure of this kind, where nothing nearer is known.
fn hint_of(kind: FailureKind) -> Option<&'static str> {
    use FailureKind as Kind;
    Some(match kind {
        Kind::InvalidKey => "make a key at https://cloud.lambda.ai/api-keys, then: gpucl login lambda",
        Kind::AccountInactive => {
            "look whether email address, billing address and payment method are in order: https://cloud.lambda.ai/settings"
        }
        Kind::Forbidden => {
            "the key's owner lacks a right in the team; an admin of it can give it: https://cloud.lambda.ai/team"
        }
        Kind::InvalidParameters | Kind::Refused => return None,
        Kind::Quota => "terminate what is not needed any more (gpucl list; gpucl down -c NAME), or ask Lambda for more",
        Kind::Duplicate => "choose another name, or delete what has it",
        Kind::NotFound => return None,
        Kind::NoCapacity => "see what is free now: gpucl offers --provider lambda",
        Kind::WrongRegion => "a file system is only in its region: `regions:` in the spec must name that one",
        Kind::InUse => "it can be deleted when no instance has it any more; try again in a minute",
        Kind::Conflict => "something else is being done with it; try again in a minute",
        Kind::RateLimited => "somebody else uses the same account; try again in a minute",
        Kind::Fault => "Lambda has trouble of its own; try again in a few minutes (https://status.lambda.ai)",
        Kind::NoApi => "does something stand between this machine and Lambda? a proxy, a captive portal?",
        Kind::Cut | Kind::Timeout => "try again; what the call did shows when it is looked at again",
        Kind::Unreachable => "is this machine online, and Lambda up? https://status.lambda.ai tells",
    })
}

/// What an answer that is no success means.
pub(super) fn classify(doing: &str, method: &Method, status: StatusCode, body: &[u8]) -> Failure {
    let error = serde_json::from_slice::<Value>(body).ok().and_then(|value| value.get("error").cloned());
    let text = |key: &str| error.as_ref().and_then(|error| error.get(key)).and_then(Value::as_str).unwrap_or_default();
    let code = text("code");
    let kind = kind_of(status, code);
    let mut told = match (shortened(text("message")), kind) {
        // The status says enough, whoever answered.
        (_, FailureKind::RateLimited) if code.is_empty() => "it was asked too often (429)".to_owned(),
        (_, FailureKind::NoApi) => page(status, body),
        (message, _) if message.is_empty() && code.is_empty() => format!("Lambda answered {}", status.as_u16()),
        (message, _) if message.is_empty() => format!("Lambda answered {}", shortened(code)),
        (message, _) if code.is_empty() => message,
        (message, _) => format!("{message} ({})", shortened(code)),
    };
    let suggestion = shortened(text("suggestion"));
    if matches!(kind, FailureKind::InvalidParameters | FailureKind::Refused) && !suggestion.is_empty() {
        told = format!("{told}: {suggestion}");
    }
    // Whoever answers 4xx has refused it, whether or not it was Lambda.
    let maybe = changes(method) && !status.is_client_error();
    let effect = if maybe { Effect::Unknown } else { Effect::None };
    Failure { status: Some(status.as_u16()), ..Failure::new(kind, doing, told) }.effect(effect)
}

/// Whether a call by this method may change something.
pub(super) fn changes(method: &Method) -> bool {
    method != Method::GET
}

fn kind_of(status: StatusCode, code: &str) -> FailureKind {
    use FailureKind as Kind;
    match code {
        "global/invalid-api-key" => Kind::InvalidKey,
        "global/account-inactive" | "global/invalid-address" => Kind::AccountInactive,
        "global/forbidden" => Kind::Forbidden,
        "global/invalid-parameters" => Kind::InvalidParameters,
        "global/quota-exceeded" => Kind::Quota,
        "global/duplicate" => Kind::Duplicate,
        "global/object-does-not-exist" | "global/not-found" => Kind::NotFound,
        "global/conflict" => Kind::Conflict,
        "instance-operations/launch/insufficient-capacity" => Kind::NoCapacity,
        "instance-operations/launch/file-system-in-wrong-region" => Kind::WrongRegion,
        "firewall-rulesets/firewall-ruleset-in-use" | "filesystems/filesystem-in-use" | "ssh-keys/key-in-use" => {
            Kind::InUse
        }
        "global/internal-error" | "global/unknown" => Kind::Fault,
        _ if status == StatusCode::TOO_MANY_REQUESTS => Kind::RateLimited,
        code if code.starts_with("provider/") => Kind::Fault,
        // No code is no answer of Lambda's.
        "" => Kind::NoApi,
        _ if status.is_server_error() => Kind::Fault,
        _ => Kind::Refused,
    }
}

/// An answer without a code, told.
fn page(status: StatusCode, body: &[u8]) -> String {
    let what = if is_page(body) { "a web page" } else { "something that is not Lambda's" };
    format!("{what} answered, with status {}", status.as_u16())
}

/// HTML, as proxies and login pages answer.
pub(super) fn is_page(body: &[u8]) -> bool {
    let begin = String::from_utf8_lossy(&body[..body.len().min(200)]).trim_start().to_ascii_lowercase();
    begin.starts_with("<!doctype") || begin.starts_with("<html") || begin.starts_with('<')
}

/// One line of no more than 300 letters, without a full stop at its end.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.trim_end_matches('.');
    match line.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// What a request without an answer means.
pub(super) fn transport(doing: &str, method: &Method, error: &reqwest::Error) -> Failure {
    use FailureKind as Kind;
    // The innermost cause says it best: `Connection refused (os error 111)`. No address here holds a secret.
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let place = error.url().and_then(reqwest::Url::host_str).unwrap_or("Lambda").to_owned();
    let (kind, text) = match error {
        error if error.is_connect() => (Kind::Unreachable, format!("{place} cannot be reached: {cause}")),
        error if error.is_timeout() => (Kind::Timeout, format!("{place} did not answer in time")),
        error if error.is_builder() => (Kind::Refused, format!("the request cannot be made: {cause}")),
        _ => (Kind::Cut, format!("the connection to {place} broke: {cause}")),
    };
    let unknown = changes(method) && matches!(kind, Kind::Timeout | Kind::Cut);
    Failure::new(kind, doing, text).effect(if unknown { Effect::Unknown } else { Effect::None })
}
