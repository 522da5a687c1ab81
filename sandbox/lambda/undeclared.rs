//! Answers of Lambda that its document does not declare. Any other deviation from the contract is a bug of the
//! stand-in.

use serde_json::Value;

/// A kind of answer that the contract does not declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Undeclared {
    /// 429: the document's text states the limits, but not the answer.
    TooManyRequests,
    /// 5xx with an error in the document's format; the document has the error, but not the status.
    ServerError,
    /// An HTML page of a proxy in front, with any status.
    Html,
    /// A body that is truncated JSON, or not JSON.
    Malformed,
    /// A code that begins with `provider/`: in the document's text, but in no schema.
    ProviderError,
    /// A path that is not in the document.
    UnknownPath,
    /// Fields that are not in the document's schema; its own examples show one.
    UnknownField,
    /// A value that is not in an enumeration.
    UnknownValue,
}

impl Undeclared {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::TooManyRequests,
        Self::ServerError,
        Self::Html,
        Self::Malformed,
        Self::ProviderError,
        Self::UnknownPath,
        Self::UnknownField,
        Self::UnknownValue,
    ];

    /// Name in [`Validated::undeclared`](super::Validated::undeclared).
    pub fn name(self) -> &'static str {
        match self {
            Self::TooManyRequests => "429",
            Self::ServerError => "5xx",
            Self::Html => "HTML",
            Self::Malformed => "malformed",
            Self::ProviderError => "provider/*",
            Self::UnknownPath => "unknown path",
            Self::UnknownField => "unknown field",
            Self::UnknownValue => "unknown value",
        }
    }

    /// Classifies an answer by status and body; `None` for most.
    pub(super) fn of(status: u16, body: Option<&Value>, text: &str) -> Option<Self> {
        let code = body.and_then(|body| body.pointer("/error/code")).and_then(Value::as_str).unwrap_or_default();
        match (status, body) {
            (429, _) => Some(Self::TooManyRequests),
            (_, None) if text.trim_start().starts_with('<') => Some(Self::Html),
            (500.., _) => Some(Self::ServerError),
            (_, None) => Some(Self::Malformed),
            (_, Some(_)) => code.starts_with("provider/").then_some(Self::ProviderError),
        }
    }
}
