//! Classifies failures by their `code`; messages are for people, and change.

use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::error::{Error, ErrorKind, Status};
use crate::provider::kit::http::{self, Effect, Unanswered};
use crate::provider::kit::{Again, FailureClass};
use crate::util::text::shortened;

/// The result of a call.
pub(crate) type Api<T> = std::result::Result<T, Failure>;

/// A call that did not succeed.
pub(crate) type Failure = http::Failure<FailureKind>;

/// The meaning of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The key is invalid or revoked.
    InvalidKey,
    /// The account is inactive, or its billing address is invalid: it cannot launch.
    AccountInactive,
    /// The key is not authorized for this.
    Forbidden,
    /// The request's parameters are invalid.
    InvalidParameters,
    /// The account's quota is used up.
    Quota,
    /// The name is in use already.
    Duplicate,
    /// It does not exist.
    NotFound,
    /// No capacity for this type in this region now.
    NoCapacity,
    /// The file system is in another region than the instance.
    WrongRegion,
    /// An instance still uses it.
    InUse,
    /// Another operation on it is in progress.
    Conflict,
    /// Too many requests.
    RateLimited,
    /// Lambda, or a service behind it, failed.
    Fault,
    /// A web page, or another response that is not Lambda's.
    NoApi,
    /// The connection broke before the response was complete.
    Cut,
    /// No response within the limit.
    Timeout,
    /// No connection; nothing was sent.
    Unreachable,
    /// Refused with an unknown code.
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

impl FailureClass for FailureKind {
    fn again(failure: &Failure) -> Again {
        match failure.kind {
            Self::RateLimited => Again::All,
            Self::Unreachable if !failure.is_of_certificate() => Again::All,
            Self::Unreachable | Self::Conflict => Again::None,
            _ if failure.passes() => Again::Reads,
            _ => Again::None,
        }
    }

    fn passes(failure: &Failure) -> bool {
        use FailureKind::{Conflict, Cut, Fault, NoApi, RateLimited, Timeout, Unreachable};
        match failure.kind {
            RateLimited | Fault | Cut | Timeout | Unreachable | Conflict => true,
            // A proxy's 5xx page is temporary, a 403 is not.
            NoApi => failure.status.is_none_or(|status| !(400..500).contains(&status)),
            _ => false,
        }
    }

    fn explain(failure: Failure) -> Error {
        use FailureKind as Kind;
        let kind = match failure.kind {
            Kind::Timeout => ErrorKind::Timeout,
            Kind::NoCapacity => ErrorKind::Capacity,
            _ => ErrorKind::Provider,
        };
        let status = match failure.kind {
            Kind::NoCapacity => Status::Temporary,
            // Reads have been retried already.
            _ if failure.passes() => Status::Persistent,
            _ => Status::Permanent,
        };
        let usual = hint_of(failure.kind);
        failure.into_error(kind, status, usual)
    }
}

/// The default hint for a failure of this kind.
fn hint_of(kind: FailureKind) -> Option<&'static str> {
    use FailureKind as Kind;
    Some(match kind {
        Kind::InvalidKey => "make a key at https://cloud.lambda.ai/api-keys, then: gpucl login lambda",
        Kind::AccountInactive => {
            "check the email address, billing address and payment method: https://cloud.lambda.ai/settings"
        }
        Kind::Forbidden => {
            "the key's owner lacks a permission in the team; a team admin can grant it: https://cloud.lambda.ai/team"
        }
        Kind::InvalidParameters | Kind::Refused => return None,
        Kind::Quota => "terminate what is not needed any more (gpucl list; gpucl down -c NAME), or ask Lambda for more",
        Kind::Duplicate => "choose another name, or delete the one that has it",
        Kind::NotFound => return None,
        Kind::NoCapacity => "see what is free now: gpucl offers --provider lambda",
        Kind::WrongRegion => "a file system is usable only in its region: `regions:` in the spec must name that region",
        Kind::InUse => "it can be deleted once no instance uses it; try again in a minute",
        Kind::Conflict => "another operation on it is in progress; try again in a minute",
        Kind::RateLimited => "somebody else uses the same account; try again in a minute",
        Kind::Fault => "Lambda is having problems; try again in a few minutes (https://status.lambda.ai)",
        Kind::NoApi => "is there a proxy or a captive portal between this machine and Lambda?",
        Kind::Cut | Kind::Timeout => "check the current state, then try again",
        Kind::Unreachable => "check that this machine is online; https://status.lambda.ai shows whether Lambda is up",
    })
}

/// Turns an unsuccessful response into a failure.
pub(super) fn classify(doing: &str, method: &Method, status: StatusCode, body: &[u8]) -> Failure {
    let error = serde_json::from_slice::<Value>(body).ok().and_then(|value| value.get("error").cloned());
    let text = |key: &str| error.as_ref().and_then(|error| error.get(key)).and_then(Value::as_str).unwrap_or_default();
    let code = text("code");
    let kind = kind_of(status, code);
    let mut message = match (shortened(text("message")), kind) {
        // The status alone says enough, whoever answered.
        (_, FailureKind::RateLimited) if code.is_empty() => "too many requests (429)".to_owned(),
        (_, FailureKind::NoApi) => page(status, body),
        (message, _) if message.is_empty() && code.is_empty() => format!("Lambda answered {}", status.as_u16()),
        (message, _) if message.is_empty() => format!("Lambda answered {}", shortened(code)),
        (message, _) if code.is_empty() => message,
        (message, _) => format!("{message} ({})", shortened(code)),
    };
    let suggestion = shortened(text("suggestion"));
    if matches!(kind, FailureKind::InvalidParameters | FailureKind::Refused) && !suggestion.is_empty() {
        message = format!("{message}: {suggestion}");
    }
    // A 4xx is a refusal, whether or not it is from Lambda.
    let effect = if status.is_client_error() { Effect::None } else { Effect::of(method) };
    Failure { status: Some(status.as_u16()), ..Failure::new(kind, doing, message) }.effect(effect)
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
        // A response without a code is not from Lambda.
        "" => Kind::NoApi,
        _ if status.is_server_error() => Kind::Fault,
        _ => Kind::Refused,
    }
}

/// Describes a response without a code.
fn page(status: StatusCode, body: &[u8]) -> String {
    let what = if is_page(body) { "a web page" } else { "something that is not Lambda's" };
    format!("{what} answered, with status {}", status.as_u16())
}

/// Whether a body is HTML, as from proxies and login pages.
pub(super) fn is_page(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"<")
}
