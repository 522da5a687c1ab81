//! How a person shows a provider who they are: what a provider with accounts adds.

use async_trait::async_trait;
use secrecy::SecretString;

use super::Context;
use crate::error::Result;

/// What a person said on the command line.
#[derive(Debug, Clone, Default)]
pub struct LoginAsk {
    /// Which of the provider's places: a site, a region.
    pub place: Option<String>,
    /// Which project or account there.
    pub project: Option<String>,
    /// The address of a place that the provider does not know by name.
    pub url: Option<String>,
}

/// What is asked of a person, and where they find it.
#[derive(Debug, Clone)]
pub struct LoginForm {
    /// The place that is meant.
    pub place: String,
    /// How to make the credential, one line a step.
    pub steps: Vec<String>,
    /// What the public half of it is called: `application credential id`; `None` where it has only a secret.
    pub id: Option<&'static str>,
    /// What the secret half is called.
    pub secret: &'static str,
}

/// A credential that was tried and is good.
#[derive(Debug)]
pub struct LoggedIn {
    /// The account that it is kept under.
    pub account: String,
    /// What is kept.
    pub kept: SecretString,
    /// The place.
    pub place: String,
    /// The project or account there.
    pub project: String,
    /// What was seen, one sentence each.
    pub seen: Vec<String>,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// Credentials that are asked for, checked and kept.
#[async_trait]
pub trait Login: Sync {
    /// What its accounts begin with.
    fn accounts(&self) -> &'static str;

    /// Place and project of an account.
    fn parts(&self, account: &str) -> Option<(String, String)>;

    /// Whether a person means this place by this word.
    fn means(&self, word: &str, place: &str) -> bool;

    /// The places that there are, the usual one first.
    fn places(&self) -> Vec<String>;

    /// The place that the surroundings name, where they name one.
    fn place(&self, context: &Context) -> Option<String>;

    /// The settings of each place that one is logged in to, by whatever is known here. Sends nothing.
    fn sources(&self, context: &Context) -> Result<Vec<serde_json::Value>>;

    /// What to ask for, and where a person finds it. Sends nothing.
    fn form(&self, context: &Context, ask: &LoginAsk) -> Result<LoginForm>;

    /// Tries the credential, and says what it is good for. Changes nothing.
    async fn check(&self, context: &Context, ask: &LoginAsk, id: &str, secret: SecretString) -> Result<LoggedIn>;
}
