//! Answers in the API's format: data, or an error whose code and message come from the contract.

use serde_json::{Map, Value, json};

use super::super::answer::Answer;
use super::contract::Contract;

/// A successful answer, with the body in `data`.
pub(super) fn data(body: Value) -> Answer {
    Answer::json(200, json!({"data": body}))
}

/// An error of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Unauthorized,
    AccountInactive,
    InvalidBillingAddress,
    InvalidParameters,
    NotFound,
    InstanceNotFound,
    FilesystemNotFound,
    FirewallRulesetNotFound,
    LaunchResourceNotFound,
    QuotaExceeded,
    InsufficientCapacity,
    FileSystemInWrongRegion,
    FilesystemInUse,
    FirewallRulesetInUse,
    Duplicate,
    Conflict,
    Internal,
}

impl Refusal {
    fn schema(self) -> &'static str {
        match self {
            Self::Unauthorized => "ApiErrorUnauthorized",
            Self::AccountInactive => "ApiErrorAccountInactive",
            Self::InvalidBillingAddress => "ApiErrorInvalidBillingAddress",
            Self::InvalidParameters => "ApiErrorInvalidParameters",
            Self::NotFound => "ApiErrorNotFound",
            Self::InstanceNotFound => "ApiErrorInstanceNotFound",
            Self::FilesystemNotFound => "ApiErrorFilesystemNotFound",
            Self::FirewallRulesetNotFound => "ApiErrorFirewallRulesetNotFound",
            Self::LaunchResourceNotFound => "ApiErrorLaunchResourceNotFound",
            Self::QuotaExceeded => "ApiErrorQuotaExceeded",
            Self::InsufficientCapacity => "ApiErrorInsufficientCapacity",
            Self::FileSystemInWrongRegion => "ApiErrorFileSystemInWrongRegion",
            Self::FilesystemInUse => "ApiErrorFilesystemInUse",
            Self::FirewallRulesetInUse => "ApiErrorFirewallRulesetInUse",
            Self::Duplicate => "ApiErrorDuplicate",
            Self::Conflict => "ApiErrorConflict",
            Self::Internal => "ApiErrorInternal",
        }
    }

    fn status(self) -> u16 {
        match self {
            Self::Unauthorized => 401,
            Self::AccountInactive | Self::InvalidBillingAddress => 403,
            Self::NotFound | Self::InstanceNotFound | Self::FilesystemNotFound | Self::FirewallRulesetNotFound => 404,
            Self::Conflict => 409,
            Self::Internal => 500,
            _ => 400,
        }
    }

    /// The error with the document's message.
    pub(super) fn plain(self) -> Answer {
        self.answer(None)
    }

    /// The error with this message.
    pub(super) fn says(self, message: impl Into<String>) -> Answer {
        self.answer(Some(message.into()))
    }

    fn answer(self, message: Option<String>) -> Answer {
        error(self.schema(), self.status(), message)
    }
}

/// The error that an operation declares for a status; the first, if it declares several.
pub(super) fn declared(method: &str, path: &str, status: u16) -> Option<Answer> {
    let schema = Contract::shared().operation(method, path)?.error(status)?;
    Some(error(schema, status, None))
}

/// An error of a schema, with this message or the document's.
fn error(name: &str, status: u16, message: Option<String>) -> Answer {
    let schema = &Contract::shared().root["components"]["schemas"][name];
    let (fields, mut error) = (&schema["properties"], Map::new());
    error.insert("code".to_owned(), fields["code"]["const"].clone());
    let message = message.map(Value::from).unwrap_or_else(|| match &fields["message"]["default"] {
        Value::Null => "The request was refused.".into(),
        text => text.clone(),
    });
    error.insert("message".to_owned(), message);
    let is_required = schema["required"].as_array().is_some_and(|names| names.contains(&"suggestion".into()));
    match &fields["suggestion"]["default"] {
        Value::Null if is_required => {
            let text = "Check the names and IDs of the request, then try again.";
            error.insert("suggestion".to_owned(), text.into());
        }
        Value::Null => {}
        text => {
            error.insert("suggestion".to_owned(), text.clone());
        }
    }
    Answer::json(status, json!({"error": error}))
}
