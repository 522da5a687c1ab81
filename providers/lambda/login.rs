//! `gpucl login lambda`.

use async_trait::async_trait;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::api::{self, Account, Status};
use super::cloud::{endpoint, pace};
use super::credentials::{ACCOUNTS, VARIABLES, account, find_key};
use crate::error::{Error, ErrorKind, Result};
use crate::provider::{Context, LoggedIn, Login, LoginAsk, LoginForm};

/// Login by API key, one per place (Lambda's address).
pub(super) struct LambdaLogin;

/// Determines the address to log in to.
fn meant(context: &Context, ask: &LoginAsk) -> Result<reqwest::Url> {
    if let Some(word) = ask.place.as_deref().filter(|word| !LambdaLogin.means(word, "Lambda") && ask.url.is_none()) {
        return Err(Error::new(ErrorKind::Usage, format!("find {word}"))
            .because("Lambda is one place for all regions, and a key is valid in each of them")
            .hint("gpucl login lambda"));
    }
    endpoint(ask.url.as_deref(), &context.user_environment)
}

#[async_trait]
impl Login for LambdaLogin {
    fn accounts(&self) -> &'static str {
        ACCOUNTS
    }

    fn parts(&self, account: &str) -> Option<(String, String)> {
        account.strip_prefix(ACCOUNTS).map(|place| (place.to_owned(), String::new()))
    }

    fn means(&self, word: &str, place: &str) -> bool {
        word.eq_ignore_ascii_case(place)
    }

    fn places(&self) -> Vec<String> {
        vec!["Lambda".to_owned()]
    }

    fn place(&self, context: &Context) -> Option<String> {
        // There is only one, so the user is not asked.
        endpoint(None, &context.user_environment).ok().map(|url| api::place_of(&url))
    }

    fn sources(&self, context: &Context) -> Result<Vec<Value>> {
        let place = api::place_of(&endpoint(None, &context.user_environment)?);
        Ok(find_key(&context.user_environment, &place)?.map(|_| json!({})).into_iter().collect())
    }

    fn form(&self, context: &Context, ask: &LoginAsk) -> Result<LoginForm> {
        Ok(LoginForm {
            place: api::place_of(&meant(context, ask)?),
            steps: vec![
                "an API key of Lambda is needed; to create one:".to_owned(),
                "  1. open https://cloud.lambda.ai/api-keys".to_owned(),
                "  2. Generate API key: any name; it is shown only this once".to_owned(),
            ],
            id: None,
            secret: "API key",
        })
    }

    async fn check(&self, context: &Context, ask: &LoginAsk, _id: &str, secret: SecretString) -> Result<LoggedIn> {
        let url = meant(context, ask)?;
        let place = api::place_of(&url);
        let source = "this login";
        let spoken = Account::new(&url, secret.clone(), source, pace(context, &url, &secret), context.events.clone())?;
        let (instances, types) = (spoken.instances().await?, spoken.types().await?);
        let running = instances.iter().filter(|one| one.status != Status::Terminated).count();
        let free = types.iter().filter(|item| !item.regions_with_capacity_available.is_empty()).count();
        let mut warnings = Vec::new();
        if let Some(name) = VARIABLES.iter().find(|name| context.user_environment.variable(name).is_some()) {
            warnings.push(format!("{name} is set and takes precedence over the stored key: unset {name}"));
        }
        Ok(LoggedIn {
            account: account(&place),
            kept: secret,
            place,
            project: String::new(),
            seen: vec![
                format!("the account has {}", crate::util::human::count(running, "instance")),
                format!("{free} of {} types have capacity now", types.len()),
            ],
            warnings,
        })
    }
}
