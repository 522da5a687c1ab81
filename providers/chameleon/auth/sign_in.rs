//! Signing in at all sites at once: with the refresh token that `ccauth` keeps, or on a page, to an application credential
//! for each site, which lasts.

use futures_util::future::join_all;
use secrecy::SecretString;

use super::super::api::{FailureKind, Site};
use super::super::credentials::{Credentials, Issuer, Method, Named};
use super::super::refresh;
use super::entry::{Entry, account};
use super::find::{Candidate, Choice, device_logins};
use super::listed::{self, ListedSite, Sites};
use super::sites::{means, site_at};
use super::trial::tried;
use crate::error::{Error, ErrorKind, Result};
use crate::provider::{Context, LoggedIn, LoginAsk, LoginPage, ShowPage, SignedIn};
use crate::secret::Vault;
use crate::util::process::host_name;
use crate::util::random;

/// Chameleon's identity provider, and the client for command lines (`ccauth` 0.3.0, `writers.py`).
const DISCOVERY: &str = "https://auth.chameleoncloud.org/auth/realms/chameleon/.well-known/openid-configuration";
const CLIENT: &str = "chi-cli-device-token";

/// Signs in at every site that is meant, and stores a credential for each. `None`: there is no such login here.
pub(super) async fn sign_in(context: &Context, ask: &LoginAsk, show: Option<ShowPage<'_>>) -> Result<Option<SignedIn>> {
    let user_environment = &context.user_environment;
    let vault = Vault::open(&user_environment.config_dir, user_environment.keyring_bus());
    let choice = Choice { cloud: None, site: ask.place.clone(), project: ask.project.clone() };
    let mut candidates = device_logins(user_environment, &vault, &choice)?;
    if candidates.is_empty() {
        // Nobody is shown a page, and nothing is stored: no site is needed either.
        if show.is_none() && !refresh::of_ccauth(user_environment).exists() {
            return Ok(None);
        }
        candidates = of_chameleon(context, ask).await;
    }
    let Some(first) = candidates.first() else { return Ok(None) };
    let Method::OidcDevice { kept, .. } = &first.credentials.method else { return Ok(None) };
    if show.is_none() && !kept.exists() {
        return Ok(None);
    }
    let kept = kept.clone();
    let lead = Site::new(first.credentials.clone(), context.events.clone())?;
    match (lead.renew_login().await, show) {
        (Ok(()), _) => {}
        (Err(failure), Some(show)) if failure.kind == FailureKind::TokenEnded => {
            let device = lead.begin_device().await?;
            show(&LoginPage {
                url: device.url.clone(),
                whole_url: device.whole_url.clone(),
                code: device.code.clone(),
                lasts: device.lasts,
            });
            lead.await_device(&device).await?;
        }
        (Err(failure), _) => return Err(failure.into()),
    }
    let (same, others): (Vec<_>, Vec<_>) = candidates
        .into_iter()
        .partition(|one| matches!(&one.credentials.method, Method::OidcDevice { kept: other, .. } if *other == kept));
    let entered = join_all(same.iter().map(|one| enter(context, &vault, one))).await;
    let mut done = SignedIn::default();
    for (one, entered) in same.iter().zip(entered) {
        match entered {
            Ok(account) => done.accounts.push(account),
            Err(error) => done.refused.push((one.site.clone(), error)),
        }
    }
    done.refused.extend(others.into_iter().map(|one| {
        let error = Error::new(ErrorKind::Usage, format!("log in to {}", one.site))
            .because("it has another identity provider than the first of your sites")
            .hint(format!("gpucl login chameleon --site {}", one.site));
        (one.site, error)
    }));
    Ok(Some(done))
}

/// The sites of Chameleon with hosts to lease, or the one that is meant; none if another address than theirs is.
async fn of_chameleon(context: &Context, ask: &LoginAsk) -> Vec<Candidate> {
    let variable = |name: &str| context.user_environment.variable(name);
    if ask.url.as_deref().or(variable("OS_AUTH_URL")).is_some_and(|url| site_at(url).is_none()) {
        return Vec::new();
    }
    let word = ask.place.as_deref().or_else(|| variable("OS_REGION_NAME"));
    let Sites { sites, trouble } = listed::sites(&context.user_environment).await;
    if let Some(trouble) = trouble {
        context.events.note(format!("the sites are those that this version knows; {}: {trouble}", listed::LIST));
    }
    let meant = sites.into_iter().filter(|site| match word {
        Some(word) => means(word, &site.name),
        None => site.bare_metal,
    });
    let candidate = |site: ListedSite| {
        let method = Method::OidcDevice {
            identity_provider: "chameleon".to_owned(),
            protocol: "openid".to_owned(),
            issuer: Issuer {
                discovery_endpoint: Some(DISCOVERY.to_owned()),
                token_endpoint: None,
                device_endpoint: None,
                client_id: CLIENT.to_owned(),
                client_secret: None,
                scope: "openid profile".to_owned(),
            },
            kept: refresh::of_ccauth(&context.user_environment),
        };
        let mut credentials = Credentials::new(method, site.auth_url);
        credentials.region = Some(site.name.clone());
        credentials.project = Named { name: ask.project.clone(), ..Named::default() };
        Candidate { source: "Chameleon".to_owned(), site: site.name, credentials, is_login: false }
    };
    meant.map(candidate).collect()
}

/// Signs in at one site: an earlier login's credential that still works is kept, else one is made and stored.
async fn enter(context: &Context, vault: &Vault, candidate: &Candidate) -> Result<LoggedIn> {
    let site = Site::new(candidate.credentials.clone(), context.events.clone())?;
    let who = site.who().await?;
    let account = account(site.region(), &who.project_name);
    let of_method = |method| Credentials {
        method,
        region: Some(site.region().to_owned()),
        project: Named { name: Some(who.project_name.clone()), ..Named::default() },
        ..candidate.credentials.clone()
    };
    let before = vault.get(&account)?.and_then(|text| Entry::read(&account, &text).ok()).filter(Entry::is_made);
    let old = before.as_ref().map(|entry| entry.id().to_owned());
    if let Some(entry) = before
        && let Ok((mut done, entry)) = tried(context, entry.credentials()).await
    {
        done.kept = entry.made().text()?;
        done.seen.push("the credential of an earlier login still works, and is kept".to_owned());
        return Ok(done);
    }
    let (id, secret) = site.make_credential(&format!("gpucl {} {}", host_name(), random::letters(6)?)).await?;
    let stored = stored(
        vault,
        &account,
        of_method(Method::ApplicationCredential { id: id.clone(), secret }),
        &site,
        &who.project_name,
    );
    let tried = match stored {
        Ok(credentials) => tried(context, credentials).await,
        Err(error) => Err(error),
    };
    let (mut done, entry) = match tried {
        Ok(done) => done,
        Err(error) => {
            let removed = site.remove_credential(&id).await;
            let _ = vault.remove(&account);
            return Err(match removed {
                Ok(()) => error,
                Err(failure) => error.hint(format!("delete the application credential {id} there: {}", failure.text)),
            });
        }
    };
    done.kept = entry.made().text()?;
    if let Some(old) = old
        && let Err(failure) = site.remove_credential(&old).await
    {
        done.warnings
            .push(format!("the application credential {old} of an earlier login is still there: {}", failure.text));
    }
    Ok(done)
}

/// Stores a credential as soon as it is made: one that nobody knows would be left at the site.
fn stored(vault: &Vault, account: &str, credentials: Credentials, site: &Site, project: &str) -> Result<Credentials> {
    let text: SecretString = Entry::new(&credentials, site.region(), project)?.made().text()?;
    vault.put(account, &text)?;
    Ok(credentials)
}
