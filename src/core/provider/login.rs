//! Login: what a provider with accounts implements.

use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;

use super::Context;
use crate::error::{Error, Result};

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

/// A page on which somebody confirms a login.
#[derive(Debug, Clone)]
pub struct LoginPage {
    /// The page's address.
    pub url: String,
    /// The address that has the code in it already, if the page takes one.
    pub whole_url: Option<String>,
    /// The code to type on the page.
    pub code: String,
    /// How long the code is valid.
    pub lasts: Duration,
}

/// Shows a page to the user, and returns at once.
pub type ShowPage<'a> = &'a (dyn Fn(&LoginPage) + Send + Sync);

/// What signing in at all places gave.
#[derive(Debug, Default)]
pub struct SignedIn {
    /// The credentials, stored already, one per place.
    pub accounts: Vec<LoggedIn>,
    /// The places that gave none, and why.
    pub refused: Vec<(String, Error)>,
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

    /// Signs in at every place at once, and stores a credential for each that it makes there: by what another program has
    /// stored, or on a page. `None`: there is nothing to sign in with, and the credential is asked for.
    ///
    /// Without `show`, nobody is asked: it uses what is stored.
    async fn sign_in(
        &self,
        _context: &Context,
        _ask: &LoginAsk,
        _show: Option<ShowPage<'_>>,
    ) -> Result<Option<SignedIn>> {
        Ok(None)
    }

    /// Deletes a stored credential at its place, if `sign_in` made it there; returns whether it did.
    async fn revoke(&self, _context: &Context, _account: &str, _kept: &SecretString) -> Result<bool> {
        Ok(false)
    }
}
