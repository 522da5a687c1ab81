//! `gpucl login chameleon`.

use async_trait::async_trait;
use secrecy::SecretString;

use super::super::api::{FailureKind, Site};
use super::super::credentials::{Credentials, Method, Named, credentials_page};
use super::each_site::each_site;
use super::entry::{ACCOUNTS, Entry, parts};
use super::find::is_known;
use super::listed::{self, ListedSite};
use super::sites::{SITES, known_site, means, site_at};
use super::trial::tried;
use crate::error::{Error, ErrorKind, Result};
use crate::provider::{Context, LoggedIn, Login, LoginAsk, LoginForm, ShowPage, SignedIn};
use crate::secret::Vault;

/// Login by application credential, one per site and project.
pub(crate) struct ChameleonLogin;

/// The site to log in to.
struct LoginSite {
    /// The site's name, if known before the first call.
    name: Option<String>,
    auth_url: String,
}

#[async_trait]
impl Login for ChameleonLogin {
    fn accounts(&self) -> &'static str {
        ACCOUNTS
    }

    fn parts(&self, account: &str) -> Option<(String, String)> {
        parts(account).map(|(site, project)| (site.to_owned(), project.to_owned()))
    }

    fn means(&self, word: &str, place: &str) -> bool {
        means(word, place)
    }

    fn places(&self) -> Vec<String> {
        SITES.iter().filter(|site| site.bare_metal).map(|site| site.name.to_owned()).collect()
    }

    fn place(&self, context: &Context) -> Option<String> {
        let variable = |name: &str| context.user_environment.variable(name);
        let of_url = || variable("OS_AUTH_URL").map(|url| site_at(url).map_or(url, |site| site.name));
        variable("OS_REGION_NAME").or_else(of_url).map(str::to_owned)
    }

    fn sources(&self, context: &Context) -> Result<Vec<serde_json::Value>> {
        let user_environment = &context.user_environment;
        let vault = Vault::open(&user_environment.config_dir, user_environment.keyring_bus());
        if !is_known(user_environment, &vault)? {
            return Ok(Vec::new());
        }
        each_site(&serde_json::json!({}), context)
    }

    fn form(&self, context: &Context, ask: &LoginAsk) -> Result<LoginForm> {
        let place = meant(context, ask)?;
        let name = place.name.unwrap_or_else(|| place.auth_url.clone());
        let in_project = match &ask.project {
            Some(project) => format!("choose the project {project} at the top"),
            None => "choose the project at the top".to_owned(),
        };
        Ok(LoginForm {
            steps: vec![
                format!("an application credential of {name} is needed; to create one:"),
                format!("  1. open {} and {in_project}", credentials_page(&place.auth_url)),
                "  2. Create Application Credential: any name, roles `member` and `reader` (none selected means all)"
                    .to_owned(),
                "  3. tick \"Unrestricted (dangerous)\": a lease acts for you while you are away, and needs it"
                    .to_owned(),
                "  4. the next page shows its id and its secret; the secret only this once".to_owned(),
            ],
            place: name,
            id: Some("application credential id"),
            secret: "secret",
        })
    }

    async fn check(&self, context: &Context, ask: &LoginAsk, id: &str, secret: SecretString) -> Result<LoggedIn> {
        let place = meant(context, ask)?;
        let method = Method::ApplicationCredential { id: id.to_owned(), secret };
        let mut credentials = Credentials::new(method, place.auth_url.clone());
        credentials.region = place.name;
        credentials.project = Named { name: ask.project.clone(), ..Named::default() };
        let variable = |name: &str| context.user_environment.variable(name);
        if let Some(interface) = variable("OS_INTERFACE") {
            credentials.interface = interface.to_owned();
        }
        credentials.cacert = variable("OS_CACERT").map(|path| context.user_environment.here.join(path));
        tried(context, credentials).await.map(|(done, _)| done)
    }

    async fn sign_in(&self, context: &Context, ask: &LoginAsk, show: Option<ShowPage<'_>>) -> Result<Option<SignedIn>> {
        super::sign_in::sign_in(context, ask, show).await
    }

    async fn revoke(&self, context: &Context, account: &str, kept: &SecretString) -> Result<bool> {
        let entry = Entry::read(account, kept)?;
        if !entry.is_made() {
            return Ok(false);
        }
        let id = entry.id().to_owned();
        let site = Site::new(entry.credentials(), context.events.clone())?;
        match site.remove_credential(&id).await {
            Ok(()) => Ok(true),
            // It ended, or was deleted on the site's page.
            Err(failure) if matches!(failure.kind, FailureKind::WrongSecret | FailureKind::UnknownCredential) => {
                Ok(true)
            }
            Err(failure) => Err(failure.into()),
        }
    }
}

/// Determines the site to log in to, and its Keystone.
fn meant(context: &Context, ask: &LoginAsk) -> Result<LoginSite> {
    let variable = |name: &str| context.user_environment.variable(name);
    let word = ask.place.as_deref().or_else(|| variable("OS_REGION_NAME"));
    let known = word.and_then(known_site);
    // OS_AUTH_URL may belong to another site than the named one.
    let of_variable =
        variable("OS_AUTH_URL").filter(|url| known.is_none() || site_at(url).is_none_or(|at| Some(at) == known));
    if let Some(url) = ask.url.as_deref().or(of_variable) {
        let name = known.or_else(|| site_at(url)).map(|site| site.name.to_owned());
        let name = name.or_else(|| word.filter(|word| !word.contains("://")).map(str::to_owned));
        return Ok(LoginSite { name, auth_url: url.to_owned() });
    }
    let known = known.map(ListedSite::from);
    let listed = listed::known(&context.user_environment);
    let names: Vec<&str> = listed.iter().map(|site| site.name.as_str()).collect();
    // A site that is newer than this version, of the list that an earlier login has read.
    let newer = || word.and_then(|word| listed.iter().find(|site| means(word, &site.name)).cloned());
    match (known.or_else(newer), word) {
        (Some(site), _) => Ok(LoginSite { name: Some(site.name), auth_url: site.auth_url }),
        (None, Some(word)) => Err(Error::new(ErrorKind::Usage, format!("find the site {word}"))
            .because(format!("known sites are {}", names.join(", ")))
            .hint(format!("gpucl login chameleon --site {word} --url https://…:5000/v3"))),
        (None, None) => Err(Error::new(ErrorKind::Usage, "find the site to log in to")
            .because(format!("no site was named; known sites are {}", names.join(", ")))
            .hint("at a terminal, a page logs you in to all sites at once, and no site need be named")
            .hint("gpucl login chameleon --site CHI@TACC")),
    }
}
