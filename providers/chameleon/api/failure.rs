//! Classifies failures of the services. The text matters more than the status code: "not enough hosts" is a 500.

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
    /// The credential exists, but the secret does not match.
    WrongSecret,
    /// No credential has this id: it was mistyped or deleted, or belongs to another site.
    UnknownCredential,
    /// The token has expired and cannot be renewed.
    TokenEnded,
    /// The token is valid for several projects, and none was chosen.
    SeveralProjects,
    /// The credential is incomplete or contradicts the settings.
    Incomplete,
    /// The credential is not authorized for this.
    Forbidden,
    /// The credential is restricted, and cannot make leases.
    RestrictedCredential,
    /// The site's catalog does not have this service.
    NoService(&'static str),
    /// It does not exist.
    NotFound,
    /// The name is in use already.
    NameTaken,
    /// Not enough of the requested hosts or floating IPs are free.
    NotEnough,
    /// The lease is being started, changed or ended.
    InTransition,
    /// Longer than the site allows.
    TooLong,
    /// The extension window is not open yet.
    NotYetExtendable,
    /// A date is in the past.
    PastDate,
    /// The project lacks service units.
    NoUnits,
    /// The project's quota is used up.
    Quota,
    /// Too many requests.
    RateLimited,
    /// The service failed (5xx).
    Fault,
    /// The connection broke before the response was complete.
    Cut,
    /// The response cannot be parsed.
    Malformed,
    /// No response within the limit.
    Timeout,
    /// No connection; nothing was sent.
    Unreachable,
    /// Refused for any other reason.
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
            Self::Cut | Self::Timeout | Self::Malformed => Again::Reads,
            // Others, such as 501, are permanent.
            Self::Fault if matches!(failure.status, Some(500 | 502 | 503 | 504)) => Again::Reads,
            _ => Again::None,
        }
    }

    fn passes(failure: &Failure) -> bool {
        use FailureKind::{Cut, Fault, InTransition, Malformed, RateLimited, Timeout, Unreachable};
        matches!(failure.kind, RateLimited | Fault | Cut | Malformed | Timeout | Unreachable | InTransition)
    }

    fn explain(failure: Failure) -> Error {
        use FailureKind as Kind;
        let kind = match failure.kind {
            Kind::NotFound => ErrorKind::NotFound,
            Kind::Timeout => ErrorKind::Timeout,
            Kind::SeveralProjects | Kind::Incomplete => ErrorKind::Usage,
            _ => ErrorKind::Provider,
        };
        let status = match failure.kind {
            // Only reads are retried automatically.
            Kind::InTransition => Status::Temporary,
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
        Kind::WrongSecret | Kind::UnknownCredential | Kind::RestrictedCredential => "gpucl login chameleon",
        Kind::TokenEnded => {
            "a token cannot be renewed: get a new one, or make an application credential: gpucl login chameleon"
        }
        Kind::SeveralProjects => "choose one: --project NAME, or set OS_PROJECT_NAME",
        Kind::Incomplete => "gpucl login chameleon",
        Kind::Forbidden => {
            "the credential needs the roles `member` and `reader` in the project; make another: gpucl login chameleon"
        }
        Kind::NoService("reservation") => "choose a site that has leases, such as --site CHI@TACC or --site CHI@UC",
        Kind::NoService(_) => "choose another site: --site NAME",
        Kind::NotFound => return None,
        Kind::NameTaken => "choose another name, or delete the one that has it",
        Kind::NotEnough => "see who has which host, and when it is free: gpucl calendar",
        Kind::InTransition => "it is being changed; try again in a minute",
        Kind::TooLong => "ask for less time: --hours 168 is a week",
        Kind::NotYetExtendable => "try again in the last two days of the lease",
        Kind::PastDate => "times without a zone are local time; check this machine's clock: `date -u`",
        Kind::NoUnits => "ask for less time, or ask the project's PI for more service units",
        Kind::Quota => "delete what is not needed any more, or ask the site for more",
        Kind::RateLimited => "try again in a minute",
        Kind::Fault => "the service is having problems; try again in a few minutes",
        Kind::Cut | Kind::Timeout => "check the current state, then try again",
        Kind::Malformed => "is there a proxy or a captive portal between this machine and the site?",
        Kind::Unreachable => "check that this machine is online; the site's web page shows whether the site is up",
        Kind::Refused => return None,
    })
}

/// Turns an unsuccessful response into a failure.
pub(super) fn classify(doing: &str, method: &Method, status: StatusCode, body: &[u8]) -> Failure {
    let text = text_of(body);
    let kind = kind_of(status, &text, body);
    let shown = if text.is_empty() { format!("the service answered {}", status.as_u16()) } else { shortened(&text) };
    let shown = match kind {
        FailureKind::Fault if !text.is_empty() => format!("the service answered {}: {shown}", status.as_u16()),
        _ => shown,
    };
    let effect = if kind == FailureKind::Fault { Effect::of(method) } else { Effect::None };
    Failure { status: Some(status.as_u16()), ..Failure::new(kind, doing, shown) }.effect(effect)
}

fn kind_of(status: StatusCode, text: &str, body: &[u8]) -> FailureKind {
    use FailureKind as Kind;
    let has = |part: &str| text.contains(part);
    if let Some(kind) = kind_of_text(text) {
        return kind;
    }
    match status.as_u16() {
        401 => Kind::WrongSecret,
        403 => Kind::Forbidden,
        404 | 410 => Kind::NotFound,
        409 if has("already exists") || has("already in use") => Kind::NameTaken,
        413 | 429 => Kind::RateLimited,
        // Neutron reports it as a type, not in the text.
        409 if String::from_utf8_lossy(body).contains("OverQuota") => Kind::Quota,
        500..=599 => Kind::Fault,
        _ => Kind::Refused,
    }
}

/// Classifies by text alone: the status code differs between releases.
fn kind_of_text(text: &str) -> Option<FailureKind> {
    use FailureKind as Kind;
    let lower = text.to_ascii_lowercase();
    let has = |part: &str| lower.contains(part);
    Some(match () {
        () if has("not enough") && has("available") => Kind::NotEnough,
        () if has("no more ip addresses available") => Kind::NotEnough,
        () if has("invalid lease status") => Kind::InTransition,
        () if has("lease duration of") && has("less than or equal to") => Kind::TooLong,
        () if has("lease can only be extended within") => Kind::NotYetExtendable,
        () if has("date must be later than") => Kind::PastDate,
        () if has("would spend") || has("project expiration date") => Kind::NoUnits,
        () if has("quota exceeded") || has("quota has been met") => Kind::Quota,
        () if has("lease with name") && has("already exists") => Kind::NameTaken,
        () => return None,
    })
}

/// The message of an error response: each service has its own format.
fn text_of(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return plain_text(&String::from_utf8_lossy(body));
    };
    let direct = |value: &Value| {
        ["error_message", "message", "faultstring", "title"]
            .iter()
            .find_map(|key| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned))
    };
    let nested = || value.as_object()?.values().find_map(|inner| direct(inner).or_else(|| inner_text(inner)));
    direct(&value).or_else(nested).unwrap_or_default()
}

fn inner_text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The text of an HTML page, such as a proxy's, without its tags.
fn plain_text(text: &str) -> String {
    let mut shown = String::new();
    let mut depth = 0_usize;
    for letter in text.chars() {
        match letter {
            '<' => depth += 1,
            '>' => {
                depth = depth.saturating_sub(1);
                shown.push(' ');
            }
            letter if depth == 0 => shown.push(letter),
            _ => {}
        }
    }
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}
