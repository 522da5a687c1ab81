//! Login: what a provider with accounts implements.

use async_trait::async_trait;
use secrecy::SecretString;

use super::Context;
use crate::error::Result;

/// The choices made on the command line.
#[derive(Debug, Clone, Default)]
pub struct LoginAsk {
    /// The provider's place: a site or region.
    pub place: Option<String>,
    /// The project or account there.
    pub project: Option<String>,
    /// The URL of a place that the provider does not know by name.
    pub url: Option<String>,
}

/// What to ask the user for, and where they find it.
#[derive(Debug, Clone)]
pub struct LoginForm {
    /// The place to log in to.
    pub place: String,
    /// How to create the credential, one line per step.
    pub steps: Vec<String>,
    /// The name of its public half: `application credential id`; `None` if there is only a secret.
    pub id: Option<&'static str>,
    /// The name of its secret half.
    pub secret: &'static str,
}

/// A credential that was tried and works.
#[derive(Debug)]
pub struct LoggedIn {
    /// The account under which it is stored.
    pub account: String,
    /// The credential to store.
    pub kept: SecretString,
    /// The place it is for.
    pub place: String,
    /// The project or account there.
    pub project: String,
    /// Observations made during the check, one sentence each.
    pub seen: Vec<String>,
    /// Warnings to show, one sentence each.
    pub warnings: Vec<String>,
}

/// How a provider's credentials are requested, checked and stored.
#[async_trait]
pub trait Login: Sync {
    /// The prefix of its account names.
    fn accounts(&self) -> &'static str;

    /// Splits an account name into place and project.
    fn parts(&self, account: &str) -> Option<(String, String)>;

    /// Whether a word given by the user refers to this place.
    fn means(&self, word: &str, place: &str) -> bool;

    /// The known places, the default first.
    fn places(&self) -> Vec<String>;

    /// The place named in the user environment, if any.
    fn place(&self, context: &Context) -> Option<String>;

    /// The settings of each place with known credentials, from any local source. Sends nothing.
    fn sources(&self, context: &Context) -> Result<Vec<serde_json::Value>>;

    /// What to ask the user for, and where they find it. Sends nothing.
    fn form(&self, context: &Context, ask: &LoginAsk) -> Result<LoginForm>;

    /// Tries the credential and reports what it gives access to. Changes nothing.
    async fn check(&self, context: &Context, ask: &LoginAsk, id: &str, secret: SecretString) -> Result<LoggedIn>;
}
