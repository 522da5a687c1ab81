//! What Lambda answers and its document does not declare. Anything else that the contract does not have is a mistake of the stand-in.

use serde_json::Value;

/// Something that is answered though the contract does not declare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Undeclared {
    /// 429: the limits are in the document's text, their answer is not.
    TooManyRequests,
    /// 5xx with an error in the document's form; it has the error, and the status nowhere.
    ServerError,
    /// A page of a proxy in front, with any status.
    Html,
    /// JSON that ends too early, or is none.
    Malformed,
    /// A code that begins with `provider/`: in the text, and in no schema.
    ProviderError,
    /// A path that the document does not have.
    UnknownPath,
    /// Fields that the document's schema does not have; its own examples show one.
    UnknownField,
    /// A value that an enumeration does not have.
    UnknownValue,
}

impl Undeclared {
    /// The whole list.
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

    /// Its name in counts.
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

    /// What an answer is by its look alone; most are declared.
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
