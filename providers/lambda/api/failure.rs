//! What a refusal means. Only its `code` is looked at: messages are for people, and change.

use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::error::{Error, ErrorKind, Status};
use crate::provider::http::{self, Effect, Unanswered};
use crate::util::text::shortened;

/// The result of a call.
pub(crate) type Api<T> = std::result::Result<T, Failure>;

/// A call that did not succeed.
pub(crate) type Failure = http::Failure<FailureKind>;

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

impl From<Unanswered> for FailureKind {
    fn from(why: Unanswered) -> Self {
        match why {
            Unanswered::Unreachable => Self::Unreachable,
            Unanswered::Timeout => Self::Timeout,
            Unanswered::Cut => Self::Cut,
            Unanswered::NotSent => Self::Refused,
        }
    }
}

impl Failure {
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
        let usual = hint_of(failure.kind);
        failure.into_error(kind, status, usual)
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
    let effect = if status.is_client_error() { Effect::None } else { Effect::of(method) };
    Failure { status: Some(status.as_u16()), ..Failure::new(kind, doing, told) }.effect(effect)
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
    body.trim_ascii_start().starts_with(b"<")
}
